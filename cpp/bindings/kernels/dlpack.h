#pragma once

#include <cstdint>

/// The part of the DLPack ABI, version 1, that reads a tensor's memory through the C exchange
/// table. Names and layout are the standard's.
namespace pyvllm_pp::dlpack {

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

struct Device {
  std::int32_t type;
  std::int32_t id;
};
inline constexpr std::int32_t kCpu = 1;

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
inline constexpr std::uint8_t kInt = 0;
inline constexpr std::uint8_t kUInt = 1;
inline constexpr std::uint8_t kFloat = 2;
inline constexpr std::uint8_t kBfloat = 4;
inline constexpr std::uint8_t kBool = 6;

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; null for a contiguous tensor
  std::uint64_t byte_offset;
};

struct ExchangeApiHeader {
  Version version;
  ExchangeApiHeader* prev_api;
};

struct ExchangeApi {
  ExchangeApiHeader header;
  void* managed_tensor_allocator;
  void* managed_tensor_from_py_object_no_sync;
  void* managed_tensor_to_py_object_no_sync;
  /// Borrows: the object keeps its memory, and shape and strides are its own. May be null.
  int (*dltensor_from_py_object_no_sync)(void* py_object, Tensor* out);
  void* current_work_stream;
};

inline constexpr const char* kApiAttribute = "__dlpack_c_exchange_api__";
inline constexpr const char* kApiCapsule = "dlpack_exchange_api";
inline constexpr std::uint32_t kMajor = 1;

}  // namespace pyvllm_pp::dlpack
