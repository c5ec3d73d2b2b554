"""First guests to start from, and the header they include; a test keeps both the same as include/ and examples/."""

HEADER = r"""/* The host calls of Treadle for WASM session guests, ABI 1. See docs/wasm.md.
 *
 * Every call returns a number >= 0, or the negative of one of the error numbers below. They are Linux's numbers; those
 * of WASI's <errno.h> differ (its EINVAL is Linux's ENOSPC), so use these.
 *
 * Link with: -Wl,--export-table -Wl,--export=cchat_alloc -Wl,--export=cchat_free   (treadle wasm build does)
 */
#ifndef TREADLE_CCHAT_H
#define TREADLE_CCHAT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TREADLE_MODULE
#define TREADLE_MODULE "treadle"
#endif
#define TREADLE_IMPORT(name) __attribute__((import_module(TREADLE_MODULE), import_name(#name)))
#define TREADLE_EXPORT(name) __attribute__((export_name(#name)))

enum {
  CCHAT_EIO = 5, CCHAT_E2BIG = 7, CCHAT_EBADF = 9, CCHAT_EAGAIN = 11, CCHAT_ENOMEM = 12, CCHAT_EACCES = 13,
  CCHAT_EFAULT = 14, CCHAT_EBUSY = 16, CCHAT_EEXIST = 17, CCHAT_EINVAL = 22, CCHAT_ENOSPC = 28, CCHAT_ENOSYS = 38,
  CCHAT_ELOOP = 40, CCHAT_EILSEQ = 84
};
enum { CCHAT_FLAG_METRICS = 1, CCHAT_FLAG_AUTO_TOOL_CALL = 2 };
enum { CCHAT_SET_PARAM = 1, CCHAT_GET_METRICS = 2 };
enum { CCHAT_LOG_TRACE, CCHAT_LOG_DEBUG, CCHAT_LOG_INFO, CCHAT_LOG_WARNING, CCHAT_LOG_ERROR };

/* A tool: JSON arguments in (followed by a NUL), text out. *out_len is the room on the way in, the size on the way out.
 * Return 0, or a negative number; up to 512 bytes of out are then read as the error's text. With -CCHAT_ENOSPC and the
 * size needed in *out_len the host calls THE TOOL A SECOND TIME with that much room: take care of effects. */
typedef int32_t (*cchat_tool)(const char *args, int32_t args_len, char *out, int32_t *out_len);

TREADLE_IMPORT(cchat_create) int32_t cchat_create(void);
TREADLE_IMPORT(cchat_write_msg)
int32_t cchat_write_msg(int32_t fd, const char *role, int32_t role_len, const char *content, int32_t content_len);
/* fn_offset is the function's place in the table, which is what a function pointer is; -1 finds export tool_<name>. */
TREADLE_IMPORT(cchat_write_fn)
int32_t cchat_write_fn(int32_t fd, int32_t fn_offset, const char *json, int32_t json_len);
TREADLE_IMPORT(cchat_ctl) int32_t cchat_ctl(int32_t fd, int32_t cmd, void *arg, int32_t *arg_len);
TREADLE_IMPORT(cchat_send) int32_t cchat_send(int32_t fd, int32_t flags);
TREADLE_IMPORT(cchat_recv) int32_t cchat_recv(int32_t response_fd, char *out, int32_t *out_len);
TREADLE_IMPORT(cchat_close) int32_t cchat_close(int32_t fd);
TREADLE_IMPORT(log) int32_t cchat_log(int32_t level, const char *text, int32_t len);
TREADLE_IMPORT(time_now_ms) int64_t cchat_time_now_ms(void);
TREADLE_IMPORT(wall_time_s) int64_t cchat_wall_time_s(void);
TREADLE_IMPORT(random_i64) int64_t cchat_random_i64(void);

/* Only in module "treadle". */
TREADLE_IMPORT(cchat_abi) int32_t cchat_abi(void);
TREADLE_IMPORT(cchat_write_result)
int32_t cchat_write_result(int32_t fd, const char *id, int32_t id_len, const char *content, int32_t content_len);
TREADLE_IMPORT(cchat_error) int32_t cchat_error(char *out, int32_t *out_len);

#ifdef __cplusplus
}
#endif
#endif
"""

SESSION_C = r"""/* A session guest: it registers a function as a tool, asks the model, and prints the answer.
 *
 *   treadle wasm build sum.c && treadle wasm run sum.wasm -m MODEL
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "treadle_cchat.h"

TREADLE_EXPORT(cchat_alloc) void *cchat_alloc(int32_t size) { return malloc((size_t)size); }
TREADLE_EXPORT(cchat_free) void cchat_free(void *pointer, int32_t size) { (void)size; free(pointer); }

static int number_after(const char *text, const char *key) {
  const char *found = strstr(text, key);
  return found ? atoi(found + strlen(key)) : 0;
}

static int32_t sum(const char *args, int32_t args_len, char *out, int32_t *out_len) {
  (void)args_len;
  int total = number_after(args, "\"a\":") + number_after(args, "\"b\":");
  int written = snprintf(out, (size_t)*out_len, "{\"sum\":%d}", total);
  if (written >= *out_len) { *out_len = written + 1; return -CCHAT_ENOSPC; }
  *out_len = written;
  return 0;
}

static const char SCHEMA[] =
    "{\"type\":\"function\",\"function\":{\"name\":\"sum\",\"description\":\"Add two whole numbers.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}},"
    "\"required\":[\"a\",\"b\"]}}}";

int main(void) {
  const char *question = "Use sum with 20 and 22.";
  int32_t fd = cchat_create();
  cchat_write_msg(fd, "user", 4, question, (int32_t)strlen(question));
  int32_t rc = cchat_write_fn(fd, (int32_t)(intptr_t)&sum, SCHEMA, (int32_t)strlen(SCHEMA));
  if (rc < 0) { fprintf(stderr, "write_fn: %d\n", rc); return 1; }
  int32_t answer = cchat_send(fd, CCHAT_FLAG_AUTO_TOOL_CALL | CCHAT_FLAG_METRICS);
  if (answer < 0) { fprintf(stderr, "send: %d\n", answer); return 1; }
  int32_t size = 65536;
  char *body = malloc((size_t)size);
  if (cchat_recv(answer, body, &size) < 0) return 1;
  printf("%.*s\n", (int)size, body);
  cchat_close(answer);
  cchat_close(fd);
  return 0;
}
"""

TOOLS_C = r"""/* A tool guest: every call gets a fresh instance. What its tools are stands in words.wasm.json beside it.
 *
 *   treadle wasm build words.c
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "treadle_cchat.h"

TREADLE_EXPORT(cchat_alloc) void *cchat_alloc(int32_t size) { return malloc((size_t)size); }
TREADLE_EXPORT(cchat_free) void cchat_free(void *pointer, int32_t size) { (void)size; free(pointer); }

TREADLE_EXPORT(tool_count_words)
int32_t tool_count_words(const char *args, int32_t args_len, char *out, int32_t *out_len) {
  int words = 0, inside = 0;
  for (int32_t i = 9; i < args_len - 2; i++) { /* between {"text":" and "} */
    if (isspace((unsigned char)args[i])) inside = 0;
    else if (!inside) { inside = 1; words++; }
  }
  *out_len = snprintf(out, (size_t)*out_len, "{\"words\":%d}", words);
  return 0;
}
"""

SESSION_WAT = r"""(module
  (import "treadle" "log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "hello from a guest")
  (func (export "run") (result i32)
    (drop (call $log (i32.const 2) (i32.const 16) (i32.const 18)))
    (i32.const 0)))
"""

TEMPLATES = {(".c", False): SESSION_C, (".c", True): TOOLS_C, (".wat", False): SESSION_WAT}
