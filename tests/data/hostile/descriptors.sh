# Programs that a shell tool starts have descriptors 0, 1 and 2 only.
open=$(ls /proc/self/fd | tr '\n' ' ')
[[ $open == "0 1 2 3 " ]] && echo HELD || echo "ESCAPED: $open" # 3 is the listing's own
