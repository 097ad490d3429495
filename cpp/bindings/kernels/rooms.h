#pragma once

#include <pybind11/pybind11.h>

/// One function a group of kernels; `module.cpp` lists them.
namespace pyvllm_pp::bindings {

void bind_inputs(pybind11::module_& module);
void bind_updates(pybind11::module_& module);
void bind_block_tables(pybind11::module_& module);
void bind_logits(pybind11::module_& module);
void bind_sampling(pybind11::module_& module);
void bind_logprobs(pybind11::module_& module);

}  // namespace pyvllm_pp::bindings
