find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
include(GoogleTest)

file(GLOB test_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/cpp/*_test.cpp")
foreach(source IN LISTS test_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}")
  target_compile_definitions(${name} PRIVATE
    PYVLLM_PP_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/tests/cpp")
  target_link_libraries(${name} PRIVATE
    pyvllm_pp_core pyvllm_pp_warnings
    GTest::gtest GTest::gtest_main nlohmann_json::nlohmann_json)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60)
endforeach()
