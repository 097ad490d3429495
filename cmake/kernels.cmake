add_library(pyvllm_pp_kernels STATIC
  cpp/kernels/arrays.cpp
  cpp/kernels/bad_words.cpp
  cpp/kernels/block_tables.cpp
  cpp/kernels/gumbel.cpp
  cpp/kernels/inputs.cpp
  cpp/kernels/logits.cpp
  cpp/kernels/logprobs.cpp
  cpp/kernels/penalties.cpp
  cpp/kernels/sampled_tokens.cpp
  cpp/kernels/simd/rows.cpp
  cpp/kernels/simd/rows_avx2.cpp
  cpp/kernels/simd/rows_avx512.cpp
  cpp/kernels/simd/rows_baseline.cpp
  cpp/kernels/slot_mappings.cpp
  cpp/kernels/thinking_budget.cpp
  cpp/kernels/token_bias.cpp
  cpp/kernels/topk_topp.cpp
  cpp/kernels/updates.cpp)
target_include_directories(pyvllm_pp_kernels PUBLIC cpp)
target_compile_options(pyvllm_pp_kernels PRIVATE
  -ffp-contract=off  # the same bits on every instruction set
  -Wno-psabi)        # vectors are passed between inlined functions only
target_link_libraries(pyvllm_pp_kernels PUBLIC pyvllm_pp_core PRIVATE pyvllm_pp_warnings)

if(PYVLLM_PP_PYTHON)
  include(cmake/pybind11.cmake)
  pybind11_add_module(_kernels MODULE
    cpp/bindings/kernels/module.cpp
    cpp/bindings/kernels/bind_block_tables.cpp
    cpp/bindings/kernels/bind_inputs.cpp
    cpp/bindings/kernels/bind_logits.cpp
    cpp/bindings/kernels/bind_logprobs.cpp
    cpp/bindings/kernels/bind_sampling.cpp
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
