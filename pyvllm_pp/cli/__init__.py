"""The command line: demo, verify, plan, doctor. Importing it loads no vLLM."""
