# The same by a shell, with nothing that would have to fork to tell.
bomb() { bomb | bomb & }
bomb 2>/dev/null
for _ in {1..2000}; do
  set -- /proc/[0-9]*
  [[ $# -lt 256 ]] || { echo "ESCAPED: $#"; exit; }
done
echo HELD
