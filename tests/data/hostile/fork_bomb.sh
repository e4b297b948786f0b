# The same by a shell.
for _ in {1..400}; do sleep 60 & done 2>/dev/null
count=$(jobs -rp | wc -l)
jobs -p | xargs -r kill -9
wait 2>/dev/null
[[ ${count:-0} -lt 256 ]] && echo HELD || echo "ESCAPED: $count"
