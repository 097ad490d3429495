add_library(pyvllm_pp_kernels STATIC
  cpp/kernels/arrays.cpp
  cpp/kernels/block_tables.cpp
  cpp/kernels/inputs.cpp
  cpp/kernels/slot_mappings.cpp
  cpp/kernels/updates.cpp)
target_include_directories(pyvllm_pp_kernels PUBLIC cpp)
target_link_libraries(pyvllm_pp_kernels PUBLIC pyvllm_pp_core PRIVATE pyvllm_pp_warnings)

if(PYVLLM_PP_PYTHON)
  include(cmake/pybind11.cmake)
  pybind11_add_module(_kernels MODULE
    cpp/bindings/kernels/module.cpp
    cpp/bindings/kernels/bind_block_tables.cpp
    cpp/bindings/kernels/bind_inputs.cpp
    cpp/bindings/kernels/bind_updates.cpp
    cpp/bindings/kernels/tensor.cpp)
  target_link_libraries(_kernels PRIVATE pyvllm_pp_kernels pyvllm_pp_warnings)
  install(TARGETS _kernels LIBRARY DESTINATION pyvllm_pp)
endif()

if(PYVLLM_PP_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  file(GLOB kernel_tests CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/cpp/kernels/*_test.cpp")
  add_executable(kernels_test ${kernel_tests})
  target_link_libraries(kernels_test PRIVATE
    pyvllm_pp_kernels pyvllm_pp_warnings GTest::gtest GTest::gtest_main)
  gtest_discover_tests(kernels_test DISCOVERY_TIMEOUT 60 TEST_PREFIX "kernels.")
endif()
