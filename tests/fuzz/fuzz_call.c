/* A function's call, from both sides: the arguments of a client become a cell in which they are one
 * literal; what a hostile guest shows becomes an answer that is text and JSON, or none. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "scheduler/call_text.h"
#include "scheduler/cell_notes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the literal at the end of the cell says; false when it ends before that. */
static bool unquote(const char *literal, const char *end, char *out)
{
    static const char letters[] = "\"\\nrt", meant[] = "\"\\\n\r\t";
    const char *at = literal + 1;
    for (; at < end && *at != '"'; at++) {
        const char *letter = *at == '\\' ? strchr(letters, *++at) : NULL;
        CL_ASSERT(*at && (at[-1] != '\\' || letter || at[-2] == '\\'));
        *out++ = letter ? meant[letter - letters] : *at;
    }
    *out = '\0';
    return at == end;
}

static void check_cell(Cloche__V1__Language language, const char *arguments)
{
    static const char before[] = "f, \"", after[] = "\")\n";
    static const char python_before[] = "\"f\", \"";
    bool python = language == CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON;
    const char *start = python ? python_before : before;
    struct cl_buf out, empty;
    struct cl_err err = {0};
    cl_buf_init(&out, CALL_TEXT_MAX);
    cl_buf_init(&empty, CALL_TEXT_MAX);
    char *back = cl_zalloc(strlen(arguments) + 1);
    if (back && call_text(language, "f", arguments, &out, &err) == 0 &&
        call_text(language, "f", "", &empty, &err) == 0) {
        /* All but the literal is the same. */
        size_t head = empty.len - sizeof after - 1;
        const char *text = (const char *)out.data;
        CL_ASSERT(memcmp(out.data, empty.data, head + 1) == 0);
        CL_ASSERT(memcmp(text + head + 1 - strlen(start), start, strlen(start)) == 0);
        CL_ASSERT(strcmp(text + out.len - sizeof after, after) == 0);
        CL_ASSERT(unquote(text + head, text + out.len - sizeof after, back));
        CL_ASSERT(strcmp(back, arguments) == 0);
    } else {
        CL_ASSERT(!back || err.code == CL_E_NOMEM);
    }
    cl_free(back);
    cl_buf_fini(&out);
    cl_buf_fini(&empty);
}

static void use_arguments(const char *text)
{
    struct cl_err err = {0};
    char entry[CALL_ENTRY_MAX + 1];
    if (call_check_arguments(text, &err) == 0) {
        check_cell(CLOCHE__V1__LANGUAGE__LANGUAGE_PYTHON, text);
        check_cell(CLOCHE__V1__LANGUAGE__LANGUAGE_JAVASCRIPT, text);
    } else {
        CL_ASSERT(err.code != CL_OK && err.text[0]);
    }
    if (call_check_entry(text, &err) == 0)
        CL_ASSERT(text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                                    "0123456789.")] == '\0');
    call_entry_of_name(text, entry);
    CL_ASSERT(!entry[0] || call_check_entry(entry, NULL) == 0);
}

static void use_result(const uint8_t *data, size_t size)
{
    static char kinds[][32] = {"application/x-cloche-result", "application/x-cloche-value"};
    Cloche__V1__RunCodeResponse m = CLOCHE__V1__RUN_CODE_RESPONSE__INIT;
    Cloche__V1__CellResult result = CLOCHE__V1__CELL_RESULT__INIT;
    Cloche__V1__MimeData form = CLOCHE__V1__MIME_DATA__INIT, *forms[] = {&form};
    struct cell_notes notes;
    struct cl_err err = {0};
    notes_init(&notes);
    m.event_case = CLOCHE__V1__RUN_CODE_RESPONSE__EVENT_RESULT;
    m.result = &result;
    result.data = forms;
    result.n_data = 1;
    form.data.data = (uint8_t *)(uintptr_t)data;
    form.data.len = size;
    for (size_t i = 0; i < CL_COUNT(kinds); i++) {
        form.mime_type = kinds[i];
        if (notes_take(&notes, &m, &err) < 0)
            CL_ASSERT(err.code == CL_E_NOMEM);
    }
    for (size_t i = 0; i < NOTE_NR; i++)
        CL_ASSERT(!notes.told[i] ||
                  (strlen(notes.told[i]) == size && cl_utf8_is_valid(notes.told[i], size)));
    notes_fini(&notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = cl_zalloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    use_arguments(text);
    use_result(data, size);
    cl_free(text);
    return 0;
}
