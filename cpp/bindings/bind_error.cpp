#include "pyvllm_pp/error.h"
#include "rooms.h"

namespace pyvllm_pp::bindings {

void bind_error(pybind11::module_& module) {
  pybind11::register_exception<FeedbackOrderError>(module, "FeedbackOrderError",
                                                   PyExc_RuntimeError);
}

}  // namespace pyvllm_pp::bindings
