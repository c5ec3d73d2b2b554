// A session guest in AssemblyScript: it registers a function as a tool, asks the model, and logs the answer.
//
//   npm install assemblyscript
//   treadle wasm build sum.ts && treadle wasm run sum.wasm -m MODEL
@external("treadle", "cchat_create") declare function cchat_create(): i32;
@external("treadle", "cchat_write_msg")
declare function cchat_write_msg(fd: i32, role: usize, roleLen: i32, content: usize, contentLen: i32): i32;
@external("treadle", "cchat_write_fn")
declare function cchat_write_fn(fd: i32, offset: i32, json: usize, jsonLen: i32): i32;
@external("treadle", "cchat_send") declare function cchat_send(fd: i32, flags: i32): i32;
@external("treadle", "cchat_recv") declare function cchat_recv(fd: i32, out: usize, outLen: usize): i32;
@external("treadle", "log") declare function host_log(level: i32, text: usize, length: i32): i32;

const AUTO_TOOL_CALL: i32 = 2;
const ENOSPC: i32 = 28;
const INFO: i32 = 2;

export function cchat_alloc(size: i32): usize {
  return heap.alloc(size);
}

export function cchat_free(pointer: usize, _size: i32): void {
  heap.free(pointer);
}

function numberAfter(text: string, key: string): i32 {
  const at = text.indexOf(key);
  return at < 0 ? 0 : i32(parseInt(text.substring(at + key.length)));
}

// A tool: JSON in, text out; outLen is the room on the way in and the size on the way out.
function sum(args: usize, argsLen: i32, out: usize, outLen: usize): i32 {
  const text = String.UTF8.decodeUnsafe(args, argsLen);
  const total = numberAfter(text, '"a":') + numberAfter(text, '"b":');
  const answer = String.UTF8.encode(`{"sum":${total}}`);
  const room = load<i32>(outLen);
  store<i32>(outLen, answer.byteLength);
  if (answer.byteLength > room) return -ENOSPC;
  memory.copy(out, changetype<usize>(answer), answer.byteLength);
  return 0;
}

const SCHEMA =
  '{"type":"function","function":{"name":"sum","description":"Add two whole numbers.","parameters":{"type":"object",' +
  '"properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}}}';

function log(text: string): void {
  const bytes = String.UTF8.encode(text);
  host_log(INFO, changetype<usize>(bytes), bytes.byteLength);
}

export function run(): i32 {
  const role = String.UTF8.encode("user");
  const question = String.UTF8.encode("Use sum with 20 and 22.");
  const schema = String.UTF8.encode(SCHEMA);
  const tool: (args: usize, argsLen: i32, out: usize, outLen: usize) => i32 = sum;
  const fd = cchat_create();
  cchat_write_msg(fd, changetype<usize>(role), role.byteLength, changetype<usize>(question), question.byteLength);
  if (cchat_write_fn(fd, tool.index, changetype<usize>(schema), schema.byteLength) < 0) return 1;
  const answer = cchat_send(fd, AUTO_TOOL_CALL);
  if (answer < 0) return 1;
  const size = heap.alloc(4);
  const body = heap.alloc(16384);
  store<i32>(size, 16384);
  if (cchat_recv(answer, body, size) < 0) return 1;
  log(String.UTF8.decodeUnsafe(body, load<i32>(size)));
  return 0;
}
