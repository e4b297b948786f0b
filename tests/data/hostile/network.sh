# Through bash's own /dev/tcp.
if exec 3<>"/dev/tcp/127.0.0.1/$PORT"; then echo ESCAPED; else echo HELD; fi 2>/dev/null
