#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>
#include <string_view>

#include "pyvllm_pp/error.h"

/// NumPy arrays as spans: exact dtype, one dimension, contiguous; never a silent copy.
namespace pyvllm_pp::bindings {

namespace py = pybind11;

template <typename T>
void check_array(std::string_view room, std::string_view name, const py::array& array) {
  if (!py::dtype::of<T>().is(array.dtype()) && !array.dtype().equal(py::dtype::of<T>())) {
    throw py::type_error(concat('[', room, "] ", name, " is ", std::string(py::str(array.dtype())),
                                ", expected ", std::string(py::str(py::dtype::of<T>()))));
  }
  if (array.ndim() != 1) {
    fail(room, name, " has ", array.ndim(), " dimensions, expected 1");
  }
  if (array.shape(0) > 1 && array.strides(0) != static_cast<py::ssize_t>(sizeof(T))) {
    fail(room, name, " has a stride of ", array.strides(0), " bytes, expected contiguous");
  }
}

/// Throws `TypeError` for another dtype, `ValueError` for another shape. No ownership: the caller
/// holds the array for as long as the span is used.
template <typename T>
std::span<const T> as_span(std::string_view room, std::string_view name, const py::array& array) {
  check_array<T>(room, name, array);
  return {static_cast<const T*>(array.data()), static_cast<std::size_t>(array.shape(0))};
}

/// As `as_span`, for arrays that are written.
template <typename T>
std::span<T> as_writable_span(std::string_view room, std::string_view name, py::array& array) {
  check_array<T>(room, name, array);
  if (!array.writeable()) {
    fail(room, name, " is read-only, expected a writable array");
  }
  return {static_cast<T*>(array.mutable_data()), static_cast<std::size_t>(array.shape(0))};
}

/// A NumPy view of memory that `owner` keeps alive.
template <typename T>
py::array view(std::span<T> span, const py::object& owner) {
  return py::array_t<T>(static_cast<py::ssize_t>(span.size()), span.data(), owner);
}

}  // namespace pyvllm_pp::bindings
