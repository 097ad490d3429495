include(cmake/pybind11.cmake)

pybind11_add_module(_core MODULE
  cpp/bindings/module.cpp
  cpp/bindings/bind_error.cpp
  cpp/bindings/bind_feedback.cpp
  cpp/bindings/bind_plan.cpp
  cpp/bindings/bind_tables.cpp)
target_link_libraries(_core PRIVATE pyvllm_pp_core pyvllm_pp_warnings)
install(TARGETS _core LIBRARY DESTINATION pyvllm_pp)
