;; A tool guest without a compiler: `count_words` counts the words of {"text": "…"}. What its tools are stands in the JSON
;; file beside it. Every call gets a fresh instance, so nothing has to be given back.
(module
  (memory (export "memory") 2)
  (data (i32.const 16) "{\"words\":")
  (func (export "cchat_alloc") (param $size i32) (result i32) (i32.const 4096))

  ;; Whether a word begins at this byte: it is no blank, and the one before it is, or is the quote.
  (func $begins (param $at i32) (result i32)
    (i32.and
      (i32.gt_u (i32.load8_u (local.get $at)) (i32.const 32))
      (i32.or
        (i32.le_u (i32.load8_u (i32.sub (local.get $at) (i32.const 1))) (i32.const 32))
        (i32.eq (i32.load8_u (i32.sub (local.get $at) (i32.const 1))) (i32.const 34)))))

  ;; Write a number in decimal and return where it ends.
  (func $decimal (param $value i32) (param $to i32) (result i32)
    (if (i32.ge_u (local.get $value) (i32.const 10))
      (then (local.set $to (call $decimal (i32.div_u (local.get $value) (i32.const 10)) (local.get $to)))))
    (i32.store8 (local.get $to) (i32.add (i32.const 48) (i32.rem_u (local.get $value) (i32.const 10))))
    (i32.add (local.get $to) (i32.const 1)))

  (func (export "tool_count_words") (param $args i32) (param $args_len i32) (param $out i32) (param $out_len i32)
    (result i32) (local $at i32) (local $end i32) (local $words i32)
    (local.set $at (i32.add (local.get $args) (i32.const 9))) ;; behind {"text":"
    (local.set $end (i32.add (local.get $args) (i32.sub (local.get $args_len) (i32.const 2)))) ;; before "}
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $words (i32.add (local.get $words) (call $begins (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $next)))
    (memory.copy (local.get $out) (i32.const 16) (i32.const 9))
    (local.set $end (call $decimal (local.get $words) (i32.add (local.get $out) (i32.const 9))))
    (i32.store8 (local.get $end) (i32.const 125))
    (i32.store (local.get $out_len) (i32.add (i32.sub (local.get $end) (local.get $out)) (i32.const 1)))
    (i32.const 0)))
