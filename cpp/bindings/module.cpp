#include "rooms.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The C++ core of pyvllm_pp: plan, tables and feedback.";
  pyvllm_pp::bindings::bind_error(module);
  pyvllm_pp::bindings::bind_plan(module);
  pyvllm_pp::bindings::bind_tables(module);
  pyvllm_pp::bindings::bind_feedback(module);
}
