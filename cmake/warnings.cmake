add_library(pyvllm_pp_warnings INTERFACE)
target_compile_options(pyvllm_pp_warnings INTERFACE
  -Wall -Wextra -Wpedantic
  -Wconversion -Wsign-conversion  # index arithmetic mixes widths: each change is said
  -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-align -Wunused -Woverloaded-virtual
  -Wnull-dereference -Wdouble-promotion -Wswitch-enum)
