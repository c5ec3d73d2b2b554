/* A tool in C: checks the digits of an IBAN. What it is called and takes stands in iban.wasm.json.
 *
 *   treadle wasm build iban.c
 */
#include <stdint.h>
#include <string.h>

#define TREADLE_EXPORT(name) __attribute__((export_name(#name)))

static char room[65536]; /* every call gets a fresh instance, so nothing has to be given back */
static int32_t used = 0;

TREADLE_EXPORT(cchat_alloc) void *cchat_alloc(int32_t size) {
  void *given = room + used;
  used += (size + 7) & ~7;
  return used <= (int32_t)sizeof room ? given : 0;
}

/* The remainder by 97 of the account's digits, then the country's letters and the check digits; letters count 10 to 35. */
static int remainder_of(const char *from, const char *to, int rest) {
  for (; from < to; from++) {
    int value = *from <= '9' ? *from - '0' : (*from | 32) - 'a' + 10;
    rest = (rest * (value > 9 ? 100 : 10) + value) % 97;
  }
  return rest;
}

TREADLE_EXPORT(tool_check_iban)
int32_t tool_check_iban(const char *args, int32_t args_len, char *out, int32_t *out_len) {
  const char *begin = args + 9, *end = args + args_len - 2; /* between {"iban":" and "} */
  int is_valid = end - begin > 4 && remainder_of(begin, begin + 4, remainder_of(begin + 4, end, 0)) == 1;
  const char *said = is_valid ? "{\"valid\":true}" : "{\"valid\":false}";
  *out_len = (int32_t)strlen(said);
  memcpy(out, said, (size_t)*out_len);
  return 0;
}
