// RUN: intarsia-opt --plan-inplace %s | FileCheck %s
// RUN: intarsia-opt --plan-inplace=reuse=false %s | FileCheck --check-prefix=NOREUSE %s
// RUN: intarsia-opt --plan-inplace=own=true %s | FileCheck --check-prefix=OWN %s

// The decisions of `plan-inplace`: a base is written in place exactly if nothing
// that can run later reads the old value.

!vec = !intarsia.tensor<[8]xf32>
!mat = !intarsia.tensor<[4, 8]xf32>

// Nobody reads the intermediate's old value.
// CHECK-LABEL: func.func @intermediate
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["inplace"]
func.func @intermediate(%x: !vec) -> !vec {
  %0 = intarsia.call "my::make"(x = %x) : (!vec) -> !vec
  %1 = intarsia.call "my::put_"(dst = %0, src = %x) mutates(%0) : (!vec, !vec) -> !vec
  return %1 : !vec
}

// CHECK-LABEL: func.func @old_value_read_later
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: the old value is read by my::read"]
func.func @old_value_read_later(%x: !vec) -> (!vec, !vec) {
  %0 = intarsia.call "my::make"(x = %x) : (!vec) -> !vec
  %1 = intarsia.call "my::put_"(dst = %0, src = %x) mutates(%0) : (!vec, !vec) -> !vec
  %2 = intarsia.call "my::read"(x = %0) : (!vec) -> !vec
  return %1, %2 : !vec, !vec
}

// CHECK-LABEL: func.func @old_value_returned
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: the old value is returned"]
func.func @old_value_returned(%x: !vec) -> (!vec, !vec) {
  %0 = intarsia.call "my::make"(x = %x) : (!vec) -> !vec
  %1 = intarsia.call "my::put_"(dst = %0, src = %x) mutates(%0) : (!vec, !vec) -> !vec
  return %0, %1 : !vec, !vec
}

// A view of the old value, made before and read after the write.
// CHECK-LABEL: func.func @view_read_later
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: the old value is read by my::read"]
func.func @view_read_later(%x: !mat) -> (!mat, !vec) {
  %0 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %row = intarsia.call "aten::select.int"(self = %0, dim = 0, index = 1) {views = array<i64: 0>} : (!mat) -> !vec
  %1 = intarsia.call "my::put_"(dst = %0, src = %x) mutates(%0) : (!mat, !mat) -> !mat
  %2 = intarsia.call "my::read"(x = %row) : (!vec) -> !vec
  return %1, %2 : !mat, !vec
}

// A view that only earlier operations read is no obstacle.
// CHECK-LABEL: func.func @view_read_before
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["inplace"]
func.func @view_read_before(%x: !mat) -> (!mat, !vec) {
  %0 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %row = intarsia.call "aten::select.int"(self = %0, dim = 0, index = 1) {views = array<i64: 0>} : (!mat) -> !vec
  %2 = intarsia.call "my::read"(x = %row) : (!vec) -> !vec
  %1 = intarsia.call "my::put_"(dst = %0, src = %x) mutates(%0) : (!mat, !mat) -> !mat
  return %1, %2 : !mat, !vec
}

// Writing into a view writes into what it is a view of.
// CHECK-LABEL: func.func @write_into_view
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: the old value is read by my::read"]
func.func @write_into_view(%x: !mat, %v: !vec) -> (!vec, !mat) {
  %0 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %row = intarsia.call "aten::select.int"(self = %0, dim = 0, index = 1) {views = array<i64: 0>} : (!mat) -> !vec
  %1 = intarsia.call "my::put_"(dst = %row, src = %v) mutates(%row) : (!vec, !vec) -> !vec
  %2 = intarsia.call "my::read"(x = %0) : (!mat) -> !mat
  return %1, %2 : !vec, !mat
}

// CHECK-LABEL: func.func @argument_of_the_caller
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: argument x belongs to the caller"]
func.func @argument_of_the_caller(%x: !vec {intarsia.name = "x"}) -> !vec {
  %1 = intarsia.call "my::put_"(dst = %x, src = %x) mutates(%x) : (!vec) -> !vec
  return %1 : !vec
}

// The KV cache: two updates of a buffer whose last value is written back. The
// buffer itself is written, and nothing is copied back.
// CHECK-LABEL: func.func @buffer
// CHECK-SAME: intarsia.writeback = "inplace"
// CHECK-COUNT-2: intarsia.inplace = ["inplace"]
func.func @buffer(%cache: !mat {intarsia.name = "b_cache", intarsia.kind = "buffer", intarsia.target = "cache"},
                  %k: !vec, %v: !vec)
    -> (!mat {intarsia.output = "buffer_mutation", intarsia.target = "cache"}, !mat) {
  %0 = intarsia.call "my::store_"(dst = view<%cache, [8], [1], 0>, src = %k) mutates(%cache) : (!mat, !vec) -> !mat
  %1 = intarsia.call "my::store_"(dst = view<%0, [8], [1], 8>, src = %v) mutates(%0) : (!mat, !vec) -> !mat
  %2 = intarsia.call "my::attend"(x = %1) : (!mat) -> !mat
  return %1, %2 : !mat, !mat
}

// The new value is made from the updated one: the buffer is written early, and
// once more at the end.
// CHECK-LABEL: func.func @buffer_overwritten_at_the_end
// CHECK-SAME: intarsia.writeback = "copy"
// CHECK: "my::store_"
// CHECK-SAME: intarsia.inplace = ["inplace"]
func.func @buffer_overwritten_at_the_end(
    %cache: !mat {intarsia.kind = "buffer", intarsia.target = "cache"}, %k: !vec)
    -> (!mat {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %0 = intarsia.call "my::store_"(dst = %cache, src = %k) mutates(%cache) : (!mat, !vec) -> !mat
  %1 = intarsia.call "my::scale"(x = %0) : (!mat) -> !mat
  return %1 : !mat
}

// AOTAutograd's trailing copy_ of what the input holds already.
// CHECK-LABEL: func.func @trailing_copy
// CHECK-SAME: intarsia.writeback = "inplace"
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["inplace"]
// CHECK: "aten::copy_"
// CHECK-SAME: intarsia.writeback = "inplace"
func.func @trailing_copy(%x: !vec {intarsia.name = "x", intarsia.kind = "user"}, %y: !vec)
    -> (!vec, !vec {intarsia.output = "input_mutation", intarsia.target = "x"}) {
  %0 = intarsia.call "my::put_"(dst = %x, src = %y) mutates(%x) : (!vec, !vec) -> !vec
  %1 = intarsia.call "my::read"(x = %0) : (!vec) -> !vec
  %2 = intarsia.call "aten::copy_"(self = %x, src = %0, non_blocking = false) mutates(%x) returns(tied) : (!vec, !vec) -> !vec
  return %1, %2 : !vec, !vec
}

// A trailing copy_ of another value is executed, into the input.
// CHECK-LABEL: func.func @trailing_copy_of_new_value
// CHECK-SAME: intarsia.writeback = "inplace"
// CHECK: "aten::copy_"
// CHECK-NOT: intarsia.writeback
// CHECK-SAME: intarsia.inplace = ["inplace"]
func.func @trailing_copy_of_new_value(%x: !vec {intarsia.name = "x", intarsia.kind = "user"})
    -> (!vec {intarsia.output = "input_mutation", intarsia.target = "x"}) {
  %0 = intarsia.call "my::read"(x = %x) : (!vec) -> !vec
  %1 = intarsia.call "aten::copy_"(self = %x, src = %0, non_blocking = false) mutates(%x) returns(tied) : (!vec, !vec) -> !vec
  return %1 : !vec
}

// Two bases, each decided for itself.
// CHECK-LABEL: func.func @two_bases
// CHECK: "my::swap_"
// CHECK-SAME: intarsia.inplace = ["inplace", "clone: the old value is read by my::read"]
func.func @two_bases(%x: !vec) -> (!vec, !vec, !vec) {
  %a = intarsia.call "my::make"(x = %x) : (!vec) -> !vec
  %b = intarsia.call "my::make"(x = %x) : (!vec) -> !vec
  %0:2 = intarsia.call "my::swap_"(a = %a, b = %b) mutates(%a, %b) : (!vec, !vec) -> (!vec, !vec)
  %1 = intarsia.call "my::read"(x = %b) : (!vec) -> !vec
  return %0#0, %0#1, %1 : !vec, !vec, !vec
}

// What may be a view of the base is one: two bases in one storage stay together.
// CHECK-LABEL: func.func @two_bases_in_one_storage
// CHECK: "my::swap_"
// CHECK-SAME: intarsia.inplace = ["clone: the old value is read by my::read", "clone: the old value is read by my::read"]
func.func @two_bases_in_one_storage(%x: !mat) -> (!vec, !mat, !mat) {
  %m = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %row = intarsia.call "aten::select.int"(self = %m, dim = 0, index = 1) {views = array<i64: 0>} : (!mat) -> !vec
  %0:2 = intarsia.call "my::swap_"(a = %row, b = %m) mutates(%row, %m) : (!vec, !mat) -> (!vec, !mat)
  %1 = intarsia.call "my::read"(x = %m) : (!mat) -> !mat
  return %0#0, %0#1, %1 : !vec, !mat, !mat
}

// Constants of the program are never written.
// CHECK-LABEL: func.func @constant
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: the storage is a constant's"]
func.func @constant(%x: !vec) -> !vec {
  %c = intarsia.weight "c" : !vec
  %0 = intarsia.call "my::put_"(dst = %c, src = %x) mutates(%c) : (!vec, !vec) -> !vec
  return %0 : !vec
}

// A subgraph may hand its argument back.
// CHECK-LABEL: func.func @through_subgraph
// CHECK: "my::put_"
// CHECK-SAME: intarsia.inplace = ["clone: the old value is read by my::read"]
func.func @through_subgraph(%x: !vec) -> (!vec, !vec) {
  %0 = intarsia.call "my::make"(x = %x) : (!vec) -> !vec
  %1 = intarsia.call "higher_order::invoke_subgraph"(subgraph = @identity, identifier = "id", operands = [%0]) : (!vec) -> !vec
  %2 = intarsia.call "my::put_"(dst = %1, src = %x) mutates(%1) : (!vec, !vec) -> !vec
  %3 = intarsia.call "my::read"(x = %0) : (!vec) -> !vec
  return %2, %3 : !vec, !vec
}
func.func private @identity(%x: !vec) -> !vec {
  return %x : !vec
}

// Programs that are not functional work in place, as they say.
// CHECK-LABEL: func.func @not_functional
// CHECK: "aten::add_.Scalar"
// CHECK-SAME: intarsia.inplace = ["inplace"]
func.func @not_functional(%x: !vec) -> !vec attributes {intarsia.aliasing} {
  %0 = intarsia.call "aten::detach"(self = %x) {aliasing, views = array<i64: 0>} : (!vec) -> !vec
  %1 = intarsia.call "aten::add_.Scalar"(self = %0, other = 1, alpha = 1) mutates(%0) returns(tied) {aliasing} : (!vec) -> !vec
  return %x : !vec
}

// Functionalised writes into a buffer: the part is written again, twice in a
// row, and what reads the buffer in between sees its state at that place.
// CHECK-LABEL: func.func @updates
// CHECK-SAME: intarsia.writeback = "inplace"
// CHECK: "aten::index_put"
// CHECK-SAME: intarsia.reuse = "inplace"
// CHECK: "aten::slice_scatter"
// CHECK-SAME: intarsia.reuse = "inplace"
// NOREUSE-LABEL: func.func @updates
// NOREUSE-SAME: intarsia.writeback = "copy"
// NOREUSE-NOT: intarsia.reuse
func.func @updates(%cache: !mat {intarsia.kind = "buffer", intarsia.target = "cache"},
                   %i: !intarsia.tensor<[1]xi64>, %row: !intarsia.tensor<[1, 8]xf32>)
    -> (!mat {intarsia.output = "buffer_mutation", intarsia.target = "cache"}, !mat) {
  %0 = intarsia.call "aten::index_put"(self = %cache, indices = [%i], values = %row, accumulate = false)
    : (!mat, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !mat
  %1 = intarsia.call "my::read"(x = %0) : (!mat) -> !mat
  %2 = intarsia.call "aten::slice_scatter"(self = %0, src = %row, dim = 0, start = 1, end = 2, step = 1)
    : (!mat, !intarsia.tensor<[1, 8]xf32>) -> !mat
  return %2, %1 : !mat, !mat
}

// The caller keeps the updated value: a tensor of its own.
// CHECK-LABEL: func.func @update_leaves
// CHECK-SAME: intarsia.writeback = "copy"
// CHECK: "aten::index_put"
// CHECK-NOT: intarsia.reuse
// CHECK: return
func.func @update_leaves(%cache: !mat {intarsia.kind = "buffer", intarsia.target = "cache"},
                         %i: !intarsia.tensor<[1]xi64>, %row: !intarsia.tensor<[1, 8]xf32>)
    -> (!mat {intarsia.output = "buffer_mutation", intarsia.target = "cache"}, !vec) {
  %0 = intarsia.call "aten::index_put"(self = %cache, indices = [%i], values = %row, accumulate = false)
    : (!mat, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !mat
  %1 = intarsia.call "aten::select.int"(self = %0, dim = 0, index = 0) {views = array<i64: 0>} : (!mat) -> !vec
  return %0, %1 : !mat, !vec
}

// The old value is read later, here as the source of the same update.
// CHECK-LABEL: func.func @update_of_old_value
// CHECK-NOT: intarsia.reuse
// CHECK: return
func.func @update_of_old_value(%cache: !mat {intarsia.kind = "buffer", intarsia.target = "cache"},
                               %i: !intarsia.tensor<[1]xi64>)
    -> (!mat {intarsia.output = "buffer_mutation", intarsia.target = "cache"}) {
  %row = intarsia.call "aten::slice.Tensor"(self = %cache, dim = 0, start = 2, end = 3, step = 1)
    {views = array<i64: 0>} : (!mat) -> !intarsia.tensor<[1, 8]xf32>
  %0 = intarsia.call "aten::slice_scatter"(self = %cache, src = %row, dim = 0, start = 1, end = 2, step = 1)
    : (!mat, !intarsia.tensor<[1, 8]xf32>) -> !mat
  return %0 : !mat
}

// An update of anything but a written-back argument makes a new tensor.
// CHECK-LABEL: func.func @update_of_intermediate
// CHECK-NOT: intarsia.reuse
// CHECK: return
func.func @update_of_intermediate(%x: !mat, %i: !intarsia.tensor<[1]xi64>, %row: !intarsia.tensor<[1, 8]xf32>) -> !mat {
  %0 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::index_put"(self = %0, indices = [%i], values = %row, accumulate = false)
    : (!mat, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !mat
  return %1 : !mat
}

// What the program made itself is updated where it lies, if that is asked for:
// the sum's tensor, but not what a custom operator may know again, nor one that
// is read later.
// CHECK-LABEL: func.func @update_of_own
// CHECK-NOT: intarsia.reuse
// CHECK: return
// OWN-LABEL: func.func @update_of_own
// OWN: "aten::index_add"
// OWN-SAME: intarsia.reuse = "inplace"
// OWN: "aten::index_add"
// OWN-NOT: intarsia.reuse
// OWN: "aten::index_add"
// OWN-NOT: intarsia.reuse
// OWN: return
func.func @update_of_own(%x: !mat, %i: !intarsia.tensor<[1]xi64>, %row: !intarsia.tensor<[1, 8]xf32>) -> (!mat, !mat, !mat, !mat) {
  %0 = intarsia.call "aten::mm"(self = %x, mat2 = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::index_add"(self = %0, dim = 0, index = %i, source = %row, alpha = 1)
    : (!mat, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !mat
  %2 = intarsia.call "my::make"(x = %x) : (!mat) -> !mat
  %3 = intarsia.call "aten::index_add"(self = %2, dim = 0, index = %i, source = %row, alpha = 1)
    : (!mat, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !mat
  %4 = intarsia.call "aten::mm"(self = %x, mat2 = %x) : (!mat) -> !mat
  %5 = intarsia.call "aten::index_add"(self = %4, dim = 0, index = %i, source = %row, alpha = 1)
    : (!mat, !intarsia.tensor<[1]xi64>, !intarsia.tensor<[1, 8]xf32>) -> !mat
  return %1, %3, %4, %5 : !mat, !mat, !mat, !mat
}

// An update that reads its own tensor a second time makes a new one.
// OWN-LABEL: func.func @update_with_itself
// OWN-NOT: intarsia.reuse
// OWN: return
func.func @update_with_itself(%x: !mat, %i: !intarsia.tensor<[4, 8]xi64>) -> !mat {
  %0 = intarsia.call "aten::mm"(self = %x, mat2 = %x) : (!mat) -> !mat
  %1 = intarsia.call "aten::scatter_add"(self = %0, dim = 1, index = %i, src = %0)
    : (!mat, !intarsia.tensor<[4, 8]xi64>) -> !mat
  return %1 : !mat
}
