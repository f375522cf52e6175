cmake_minimum_required(VERSION 3.25)
# Make a C array of books.lua, its digest and its version (said once, in books.h) filled in:
#   cmake -DIN=books.lua -DOUT=books_lua.c -DHEADER=books.h -P embed.cmake
file(STRINGS ${HEADER} line REGEX "BOOKS_LIBRARY_VERSION = ")
string(REGEX REPLACE ".*= ([0-9]+).*" "\\1" version "${line}")
file(SHA256 ${IN} digest)
file(READ ${IN} text)
string(REPLACE "@VERSION@" "${version}" text "${text}")
string(REPLACE "@DIGEST@" "${digest}" text "${text}")
file(WRITE ${OUT}.tmp "${text}")
file(READ ${OUT}.tmp hex HEX)
file(REMOVE ${OUT}.tmp)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE ${OUT} "/* Generated from redis/books.lua. */
#include \"redis/books_priv.h\"
const unsigned char books_lua[] = {${bytes}};
const size_t books_lua_n = sizeof books_lua;
const char books_lua_digest[] = \"${digest}\";
")
