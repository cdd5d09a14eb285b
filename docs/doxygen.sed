# How Doxygen is shown the sources. The inline namespace, whose name is for the linker alone, would hide the one that
# people write; and files that are not in its output cannot be linked to.
s/::inline DRIFTLESS_ABI//
s/(^|[^!])\[([^]]*)\]\([^:)]*(\.hpp|\.cpp|\.py|\.sh|LICENSE)\)/\1\2/g
