/* The host calls of Treadle for WASM session guests, ABI 1. See docs/wasm.md.
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
