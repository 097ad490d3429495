find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
if(NOT pybind11_DIR)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m pybind11 --cmakedir
    OUTPUT_VARIABLE pybind11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
find_package(pybind11 3 CONFIG REQUIRED)

pybind11_add_module(_core MODULE
  cpp/bindings/module.cpp
  cpp/bindings/bind_error.cpp
  cpp/bindings/bind_feedback.cpp
  cpp/bindings/bind_plan.cpp
  cpp/bindings/bind_tables.cpp)
target_link_libraries(_core PRIVATE pyvllm_pp_core pyvllm_pp_warnings)
install(TARGETS _core LIBRARY DESTINATION pyvllm_pp)
