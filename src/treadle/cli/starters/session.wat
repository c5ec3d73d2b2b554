;; A session guest without a compiler: it asks the model one question and logs the answer.
;;
;;   treadle wasm run hello.wat -m demo
(module
  (import "treadle" "cchat_create" (func $create (result i32)))
  (import "treadle" "cchat_write_msg" (func $write (param i32 i32 i32 i32 i32) (result i32)))
  (import "treadle" "cchat_send" (func $send (param i32 i32) (result i32)))
  (import "treadle" "cchat_recv" (func $recv (param i32 i32 i32) (result i32)))
  (import "treadle" "log" (func $log (param i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 16) "user")
  (data (i32.const 32) "Say hello to a guest.")
  (func (export "run") (result i32) (local $chat i32) (local $answer i32)
    (local.set $chat (call $create))
    (drop (call $write (local.get $chat) (i32.const 16) (i32.const 4) (i32.const 32) (i32.const 21)))
    (local.set $answer (call $send (local.get $chat) (i32.const 0)))
    (if (i32.lt_s (local.get $answer) (i32.const 0)) (then (return (i32.const 1))))
    (i32.store (i32.const 64) (i32.const 16384)) ;; room for the answer, and then its size
    (drop (call $recv (local.get $answer) (i32.const 4096) (i32.const 64)))
    (drop (call $log (i32.const 2) (i32.const 4096) (i32.load (i32.const 64))))
    (i32.const 0)))
