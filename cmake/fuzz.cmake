# libFuzzer targets: clang, address and undefined sanitizers (preset `fuzz`).
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "libFuzzer needs clang, this is ${CMAKE_CXX_COMPILER_ID}")
endif()

# The core is instrumented for coverage too, without a main of its own.
target_compile_options(pyvllm_pp_core PRIVATE -fsanitize=fuzzer-no-link)

foreach(name plan tables feedback)
  add_executable(${name}_fuzz cpp/fuzz/${name}_fuzz.cpp)
  target_include_directories(${name}_fuzz PRIVATE "${CMAKE_SOURCE_DIR}/tests/cpp")
  target_compile_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name}_fuzz PRIVATE pyvllm_pp_core pyvllm_pp_warnings)
endforeach()
