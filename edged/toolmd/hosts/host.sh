# Runs one call of a bash tool inside its sandbox.
#
# Started as `bash /edged/host.sh ENTRY NONCE`. Descriptor 0 brings the length of
# a shell fragment, the fragment (the INPUT_ variables, made by the daemon), and
# then the parameters as JSON, which are the tool's standard input. What the tool
# writes to descriptor 1 is its result; its exit status says whether it failed.
# The tool is sourced, so that a shell that waits needs no second start.

PATH=$PATH:${BASH_SOURCE[0]%/*}/bin
__edged_nonce=$2

# edged-update TEXT: shows TEXT as the state of the call, in place of the one before.
# Each frame is one write without a newline, since bash flushes at newlines.
edged-update() {
  local LC_ALL=C text=$* part more=+
  text=${text//\\/\\\\}
  text=${text//$'\n'/\\n}
  while [[ $more == + ]]; do
    part=${text:0:4000} text=${text:4000}
    [[ $text ]] || more=.
    printf '\x1e%st%s%04x%s' "$__edged_nonce" "$more" "${#part}" "$part"
  done
}

printf '\x1e%sR.0000' "$__edged_nonce"
LC_ALL=C IFS= read -r __edged_length || exit 0
LC_ALL=C IFS= read -r -N "$__edged_length" __edged_inputs || exit 0
eval "$__edged_inputs"
unset __edged_length __edged_inputs
BASH_ARGV0=$1
set --
. "$0"
