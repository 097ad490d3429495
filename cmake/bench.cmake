# The benchmark of the core. Shapes come from bench/shapes.json, which Python reads too.
find_package(benchmark REQUIRED)

set(shapes_json "${CMAKE_SOURCE_DIR}/bench/shapes.json")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${shapes_json}")
file(READ "${shapes_json}" json)

# Joins the numbers of a JSON array: "2, 4, 8".
function(json_numbers out)
  string(JSON array GET "${json}" ${ARGN})
  string(REGEX REPLACE "[][\n\r ]+" "" numbers "${array}")
  set(${out} "${numbers}" PARENT_SCOPE)
endfunction()

json_numbers(SHAPES_PCP_SIZES pcp_sizes)
json_numbers(SHAPES_DECODES scaling decodes)
json_numbers(SHAPES_PROMPTS_OF_16 scaling prompts_of_16)
json_numbers(SHAPES_TOKENS_OF_4_PROMPTS scaling tokens_of_4_prompts)
string(JSON SHAPES_SCALING_PCP_SIZE GET "${json}" scaling pcp_size)
string(JSON SHAPES_SCALING_MAX_NUM_REQS GET "${json}" scaling max_num_reqs)
string(JSON SHAPES_MAX_NUM_REQS GET "${json}" limits max_num_reqs)
string(JSON SHAPES_MAX_NUM_TOKENS GET "${json}" limits max_num_tokens)
set(SHAPES_BATCHES "")
string(JSON num_batches LENGTH "${json}" batches)
math(EXPR last_batch "${num_batches} - 1")
foreach(i RANGE ${last_batch})
  foreach(key name num_reqs tokens_each is_prefilling)
    string(JSON ${key} GET "${json}" batches ${i} ${key})
  endforeach()
  string(REPLACE "ON" "true" is_prefilling "${is_prefilling}")
  string(REPLACE "OFF" "false" is_prefilling "${is_prefilling}")
  string(APPEND SHAPES_BATCHES
    "    {\"${name}\", ${num_reqs}, ${tokens_each}, ${is_prefilling}},\n")
endforeach()
configure_file(bench/cpp/shapes.h.in "${CMAKE_BINARY_DIR}/bench/shapes.h" @ONLY)

add_executable(core_bench bench/cpp/core_bench.cpp bench/cpp/cases.cpp)
target_include_directories(core_bench PRIVATE bench/cpp "${CMAKE_BINARY_DIR}/bench")
target_link_libraries(core_bench PRIVATE
  pyvllm_pp_core pyvllm_pp_warnings benchmark::benchmark)
