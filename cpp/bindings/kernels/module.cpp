#include "rooms.h"

PYBIND11_MODULE(_kernels, module) {
  module.doc() = "C++ stand-ins for Triton kernels, each under its kernel's name.";
  pyvllm_pp::bindings::bind_inputs(module);
  pyvllm_pp::bindings::bind_updates(module);
  pyvllm_pp::bindings::bind_block_tables(module);
  pyvllm_pp::bindings::bind_logits(module);
  pyvllm_pp::bindings::bind_sampling(module);
  pyvllm_pp::bindings::bind_logprobs(module);
}
