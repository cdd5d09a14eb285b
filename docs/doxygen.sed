# How Doxygen is shown the sources: files that are not in its output cannot be linked to.
s/(^|[^!])\[([^]]*)\]\([^:)]*(\.hpp|\.cpp|\.py|\.sh|LICENSE)\)/\1\2/g
