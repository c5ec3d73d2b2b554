/* A session guest: it registers a function as a tool, asks the model, and prints the answer.
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
