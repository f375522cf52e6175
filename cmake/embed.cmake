# Turn file IN into a C array NAME (and NAME_size) in OUT.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "#include <stddef.h>\n#include <stdint.h>\nextern const uint8_t ${NAME}[];\nextern const size_t ${NAME}_size;\nconst uint8_t ${NAME}[] = {${bytes}};\nconst size_t ${NAME}_size = sizeof ${NAME};\n")
