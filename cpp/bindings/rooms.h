#pragma once

#include <pybind11/pybind11.h>

/// One function a room; `module.cpp` lists them.
namespace pyvllm_pp::bindings {

void bind_error(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_tables(pybind11::module_& module);
void bind_feedback(pybind11::module_& module);

}  // namespace pyvllm_pp::bindings
