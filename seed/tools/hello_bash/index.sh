printf 'Hello, %s!\n' "$INPUT_NAME"
