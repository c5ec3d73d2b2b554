/* A tool guest: every call gets a fresh instance. What its tools are stands in words.wasm.json beside it.
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
