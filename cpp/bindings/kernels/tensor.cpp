#include "tensor.h"

#include <array>
#include <optional>
#include <string>

#include "dlpack.h"
#include "pyvllm_pp/error.h"

namespace pyvllm_pp::bindings {
namespace {

using kernels::ElementType;
using Borrow = decltype(dlpack::ExchangeApi::dltensor_from_py_object_no_sync);

[[noreturn]] void refuse(py::handle object, std::string_view why) {
  throw py::type_error(concat("[kernels] ", std::string(py::str(py::type::of(object))), ' ', why));
}

/// The table's version of the standard that we know, if there is one.
Borrow borrow_of(py::handle object) {
  const py::handle type = reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
  if (!py::hasattr(type, dlpack::kApiAttribute)) {
    refuse(object, "is no tensor: it has no DLPack exchange table");
  }
  const py::object capsule = type.attr(dlpack::kApiAttribute);
  auto* header = static_cast<dlpack::ExchangeApiHeader*>(
      PyCapsule_GetPointer(capsule.ptr(), dlpack::kApiCapsule));
  if (header == nullptr) {
    throw py::error_already_set();
  }
  while (header != nullptr && header->version.major != dlpack::kMajor) {
    header = header->prev_api;
  }
  auto* api = reinterpret_cast<dlpack::ExchangeApi*>(header);
  if (api == nullptr || api->dltensor_from_py_object_no_sync == nullptr) {
    refuse(object, "lends no memory through DLPack version 1");
  }
  return api->dltensor_from_py_object_no_sync;
}

/// As `borrow_of`, remembered for the last type: all arguments of a launch have the same one.
/// Guarded by the GIL.
Borrow cached_borrow_of(py::handle object) {
  static PyTypeObject* last_type = nullptr;
  static Borrow last = nullptr;
  if (Py_TYPE(object.ptr()) != last_type) {
    last = borrow_of(object);
    last_type = Py_TYPE(object.ptr());
    Py_INCREF(last_type);
  }
  return last;
}

std::optional<ElementType> integer_type(std::uint8_t bits) {
  switch (bits) {
    case 32:
      return ElementType::int32;
    case 64:
      return ElementType::int64;
    default:
      return std::nullopt;
  }
}

std::optional<ElementType> float_type(std::uint8_t bits) {
  switch (bits) {
    case 16:
      return ElementType::float16;
    case 32:
      return ElementType::float32;
    case 64:
      return ElementType::float64;
    default:
      return std::nullopt;
  }
}

std::optional<ElementType> element_type(const dlpack::DataType& type) {
  switch (type.code) {
    case dlpack::kInt:
      return integer_type(type.bits);
    case dlpack::kUInt:
      return type.bits == 8    ? std::optional(ElementType::uint8)
             : type.bits == 64 ? std::optional(ElementType::uint64)
                               : std::nullopt;
    case dlpack::kFloat:
      return float_type(type.bits);
    case dlpack::kBfloat:
      return ElementType::bfloat16;
    case dlpack::kBool:
      return ElementType::boolean;
    default:
      return std::nullopt;
  }
}

std::int64_t extent(const dlpack::Tensor& tensor) {
  std::int64_t last = 0;
  std::int64_t stride = 1;
  for (std::int32_t i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] == 0) {
      return 0;
    }
    last += (tensor.shape[i] - 1) * (tensor.strides == nullptr ? stride : tensor.strides[i]);
    stride *= tensor.shape[i];
  }
  return last + 1;
}

}  // namespace

Tensor::Tensor(py::handle object) {
  if (object.is_none()) {
    return;
  }
  dlpack::Tensor view{};
  if (cached_borrow_of(object)(object.ptr(), &view) != 0) {
    throw py::error_already_set();
  }
  const auto type = element_type(view.dtype);
  if (!type || view.device.type != dlpack::kCpu) {
    refuse(object,
           concat("of type ", std::string(py::str(object.attr("dtype"))), " on ",
                  std::string(py::str(object.attr("device"))), " is none that kernels take"));
  }
  type_ = *type;
  size_ = extent(view);
  data_ = static_cast<std::byte*>(view.data) + view.byte_offset;
}

kernels::Ints Tensor::ints(std::string_view kernel, std::string_view name) const {
  if (type_ == ElementType::int64) {
    return {static_cast<std::int64_t*>(data_), size_};
  }
  require(kernel, name, ElementType::int32);
  return {static_cast<std::int32_t*>(data_), size_};
}

kernels::Logits Tensor::logits(std::string_view kernel, std::int64_t stride,
                               std::int64_t vocab_size) const {
  const bool is_float = type_ == ElementType::bfloat16 || type_ == ElementType::float16;
  if (!is_float) {
    require(kernel, "logits", ElementType::float32);
  }
  return {.data = data_, .type = type_, .size = size_, .stride = stride, .vocab_size = vocab_size};
}

void Tensor::require(std::string_view kernel, std::string_view name, ElementType type) const {
  if (type_ != type) {
    throw py::type_error(concat('[', kernel, "] ", name, " is ",
                                data_ == nullptr ? "absent" : kernels::name_of(type_),
                                ", expected ", kernels::name_of(type)));
  }
}

Grid::Grid(py::handle object) {
  const auto sizes = py::reinterpret_borrow<py::tuple>(object);
  if (!py::isinstance<py::tuple>(object) || sizes.empty() || sizes.size() > sizes_.size()) {
    throw py::type_error("[kernels] grid is " + std::string(py::str(object)) +
                         ", expected a tuple of one to three sizes");
  }
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    sizes_.at(axis) = sizes[axis].cast<std::int64_t>();
  }
}

}  // namespace pyvllm_pp::bindings
