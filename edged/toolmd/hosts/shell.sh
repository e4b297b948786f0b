# Runs one command of a caller inside its sandbox, for the tool `exec`.
#
# Started as `sh /edged/shell.sh NONCE`. Descriptor 0 brings three lines, in which a
# backslash is \\ and a newline \n: how (run, pipe or pty), where, and the command. What
# follows them is the command's own standard input, which `run` does not give it. POSIX
# shell: a spare is as small as it can be.

nonce=$1

next() {
  IFS= read -r value || exit 0
  case $value in
  *\\*)
    value=$(printf '%b.' "$value")
    value=${value%.}
    ;;
  esac
}

printf '\036%sR.0000' "$nonce"
next
how=$value
next
where=$value
next
if ! cd -- "$where" 2>/dev/null; then
  printf '\036%sf.0007workdir' "$nonce"
  exit 1
fi
unset OLDPWD
shell=/bin/sh
[ -x /bin/bash ] && shell=/bin/bash
printf '\036%st.0000' "$nonce"
case $how in
run) exec "$shell" -c -- "$value" sh </dev/null ;;
pipe) exec "$shell" -c -- "$value" sh ;;
esac
exec python3 -I -S "${0%/*}/terminal.py" "$shell" -c -- "$value" sh
