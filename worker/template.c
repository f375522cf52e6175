/* worker/template.c - see worker/template.h. */
#include "worker/template.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/own.h"
#include "net/control.h"
#include "worker/digest.h"
#include "worker/rest.h"
#include "worker/vm_driver.h"

enum {
    BUILD_NAME = TEMPLATE_BUILD - 1, /* of an image key, its folder's name: images/build.sh */
    TSC_NOISE = 64,                  /* of two measurements of one frequency: a part in so many */
};

/* --- the manifest --------------------------------------------------------------------------- */

static int get_text(const json_t *root, const char *key, char *out, size_t size, struct cl_err *err)
{
    const char *s = json_string_value(json_object_get(root, key));
    if (!s)
        return cl_fail(err, CL_E_INVALID, 0, "manifest: '%s' is missing or no string", key);
    if (strlen(s) >= size)
        return cl_fail(err, CL_E_INVALID, 0, "manifest: '%s' is longer than %zu bytes", key,
                       size - 1);
    memcpy(out, s, strlen(s) + 1);
    return 0;
}

static int get_digest(const json_t *root, const char *key, char out[static TEMPLATE_HEX],
                      struct cl_err *err)
{
    uint8_t raw[32];
    if (get_text(root, key, out, TEMPLATE_HEX, err) < 0)
        return -1;
    if (!cl_unhex(out, strlen(out), raw, sizeof raw))
        return cl_fail(err, CL_E_INVALID, 0, "manifest: '%s' is no SHA-256 in hex", key);
    return 0;
}

static int get_number(const json_t *root, const char *key, json_int_t min, json_int_t max,
                      uint32_t *ret, struct cl_err *err)
{
    const json_t *v = json_object_get(root, key);
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < min || n > max)
        return cl_fail(err, CL_E_INVALID, 0, "manifest: '%s' must be a number from %lld to %lld",
                       key, (long long)min, (long long)max);
    *ret = (uint32_t)n;
    return 0;
}

static int get_warmup(const json_t *command, struct template_warmup *w, struct cl_err *err)
{
    size_t n = json_array_size(command);
    if (n == 0 || n > TEMPLATE_ARGV_MAX)
        return cl_fail(err, CL_E_INVALID, 0, "manifest: a warm-up has 1 to %d words",
                       TEMPLATE_ARGV_MAX);
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(command, i));
        if (!word)
            return cl_fail(err, CL_E_INVALID, 0, "manifest: a warm-up's word is no string");
        w->argv[i] = cl_strdup(word);
        if (!w->argv[i])
            return cl_fail(err, CL_E_NOMEM, 0, "manifest");
    }
    return 0;
}

static int get_warmups(const json_t *root, struct template_manifest *m, struct cl_err *err)
{
    const json_t *list = json_object_get(root, "warm_up");
    if (!json_is_array(list) || json_array_size(list) > TEMPLATE_WARMUPS_MAX)
        return cl_fail(err, CL_E_INVALID, 0,
                       "manifest: 'warm_up' must be a list of at most %d commands",
                       TEMPLATE_WARMUPS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        m->n_warmups++;
        if (get_warmup(json_array_get(list, i), &m->warmups[i], err) < 0)
            return -1;
    }
    return 0;
}

static int get_code(const json_t *context, const char *key, char **ret, struct cl_err *err)
{
    const json_t *value = json_object_get(context, key);
    if (value && !json_is_string(value))
        return cl_fail(err, CL_E_INVALID, 0, "manifest: '%s' of a context is no string", key);
    *ret = cl_strdup(value ? json_string_value(value) : "");
    return *ret ? 0 : cl_fail(err, CL_E_NOMEM, 0, "manifest");
}

static int get_context(const json_t *json, struct template_context *c, struct cl_err *err)
{
    static const char *const names[] = {[TEMPLATE_PYTHON] = "python",
                                        [TEMPLATE_BASH] = "bash",
                                        [TEMPLATE_JAVASCRIPT] = "javascript"};
    const char *name = json_string_value(json_object_get(json, "language"));
    for (int i = TEMPLATE_PYTHON; name && i <= TEMPLATE_JAVASCRIPT; i++)
        if (strcmp(names[i], name) == 0)
            *c = (struct template_context){.language = (enum template_language)i, .id = names[i]};
    if (!c->id)
        return cl_fail(err, CL_E_INVALID, 0,
                       "manifest: 'language' of a context is python, bash or javascript");
    if (get_code(json, "preload", &c->preload, err) < 0)
        return -1;
    return get_code(json, "warm_up", &c->warm_up, err);
}

/* A manifest of before has none. */
static int get_contexts(const json_t *root, struct template_manifest *m, struct cl_err *err)
{
    const json_t *list = json_object_get(root, "contexts");
    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > TEMPLATE_CONTEXTS_MAX)
        return cl_fail(err, CL_E_INVALID, 0,
                       "manifest: 'contexts' must be a list of at most %d code contexts",
                       TEMPLATE_CONTEXTS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        m->n_contexts++;
        if (get_context(json_array_get(list, i), &m->contexts[i], err) < 0)
            return -1;
        for (size_t j = 0; j < i; j++)
            if (m->contexts[j].language == m->contexts[i].language)
                return cl_fail(err, CL_E_INVALID, 0, "manifest: two contexts of one language");
    }
    return 0;
}

/* Of a recipe there is none, and what a file of the host's is called is nobody's business. */
static void get_image(const json_t *root, struct template_manifest *m)
{
    static const char registry[] = "docker://";
    const char *source =
        json_string_value(json_object_get(json_object_get(root, "container"), "source"));
    size_t n = sizeof registry - 1;
    if (source && strncmp(source, registry, n) == 0 && strlen(source + n) < sizeof m->image)
        memcpy(m->image, source + n, strlen(source + n) + 1);
}

static int read_fields(const json_t *root, struct template_manifest *m, struct cl_err *err)
{
    uint32_t version;
    if (get_number(root, "version", 1, INT_MAX, &version, err) < 0)
        return -1;
    if (version > TEMPLATE_VERSION)
        return cl_fail(
            err, CL_E_UNIMPL, 0,
            "manifest version %u, newest known %d: rebuild the template with this release's "
            "`cloche template build`",
            version, TEMPLATE_VERSION);
    const json_t *kernel = json_object_get(root, "kernel"),
                 *verity = json_object_get(root, "verity"),
                 *scratch = json_object_get(root, "scratch");
    if (get_text(root, "name", m->name, sizeof m->name, err) < 0 ||
        get_digest(root, "key", m->image_key, err) < 0 ||
        get_digest(verity, "root", m->verity_root, err) < 0 ||
        get_digest(kernel, "sha256", m->kernel_sha256, err) < 0 ||
        get_text(kernel, "version", m->kernel_version, sizeof m->kernel_version, err) < 0 ||
        get_digest(json_object_get(root, "initrd"), "sha256", m->initrd_sha256, err) < 0 ||
        get_digest(json_object_get(root, "rootfs"), "sha256", m->rootfs_sha256, err) < 0 ||
        (scratch && get_digest(scratch, "sha256", m->scratch_sha256, err) < 0) ||
        get_text(root, "cmdline", m->cmdline, sizeof m->cmdline, err) < 0 ||
        get_number(root, "protocol_major", 1, 1000, &m->protocol_major, err) < 0 ||
        get_number(root, "memory_mib", 64, 65536, &m->default_memory_mib, err) < 0 ||
        get_number(root, "vcpus", 1, 64, &m->default_vcpus, err) < 0)
        return -1;
    if (!cl_name_is_valid(m->name))
        return cl_fail(err, CL_E_INVALID, 0, "manifest: '%s' is no template name", m->name);
    get_image(root, m);
    if (get_warmups(root, m, err) < 0)
        return -1;
    return get_contexts(root, m, err);
}

int template_parse(const char *json, size_t n, struct template_manifest *ret_manifest,
                   struct cl_err *err)
{
    if (n > TEMPLATE_MANIFEST_MAX)
        return cl_fail(err, CL_E_TOOBIG, 0, "manifest of %zu bytes, at most %d", n,
                       TEMPLATE_MANIFEST_MAX);
    json_error_t where;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return cl_fail(err, CL_E_INVALID, 0, "manifest: line %d: %s", where.line, where.text);
    *ret_manifest = (struct template_manifest){0};
    int rc = read_fields(root, ret_manifest, err);
    json_decref(root);
    if (rc < 0)
        template_manifest_fini(ret_manifest);
    return rc;
}

void template_manifest_fini(struct template_manifest *m)
{
    for (size_t i = 0; i < m->n_warmups; i++) {
        for (size_t j = 0; j < TEMPLATE_ARGV_MAX; j++)
            cl_free(m->warmups[i].argv[j]);
    }
    for (size_t i = 0; i < m->n_contexts; i++) {
        cl_free(m->contexts[i].preload);
        cl_free(m->contexts[i].warm_up);
    }
    *m = (struct template_manifest){0};
}

/* --- opening -------------------------------------------------------------------------------- */

static bool is_signed_by(EVP_PKEY *key, const struct cl_buf *text, const struct cl_buf *sig)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool good = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestVerify(ctx, sig->data, sig->len, text->data, text->len) == 1;
    EVP_MD_CTX_free(ctx);
    return good;
}

/* By one of the keys in the file. */
static int verify_signature(const char *public_keys, const struct cl_buf *text,
                            const struct cl_buf *sig, struct cl_err *err)
{
    CL_AUTO(cl_fclosep) FILE *f = fopen(public_keys, "re");
    if (!f)
        return cl_fail(err, CL_E_SYS, errno, "open the templates' public key '%s'", public_keys);
    bool good = false;
    for (int n = 0; n < TEMPLATE_KEYS_MAX && !good; n++) {
        EVP_PKEY *key = PEM_read_PUBKEY(f, NULL, NULL, NULL);
        if (!key)
            break;
        good = is_signed_by(key, text, sig);
        EVP_PKEY_free(key);
    }
    ERR_clear_error(); /* the end of the file is one */
    if (!good)
        return cl_fail(
            err, CL_E_DENIED, 0,
            "the manifest's signature does not fit a key in '%s': build the image again with "
            "`cloche template build`, or install the public key of whoever built it",
            public_keys);
    return 0;
}

static int read_manifest(int dir, const char *public_keys, struct template_manifest *m,
                         struct cl_err *err)
{
    struct cl_buf text, sig;
    cl_buf_init(&text, TEMPLATE_MANIFEST_MAX);
    cl_buf_init(&sig, 1024);
    int rc = cl_file_read(dir, "manifest.json", &text, err);
    if (rc == 0)
        rc = cl_file_read(dir, "manifest.sig", &sig, err);
    if (rc == 0)
        rc = verify_signature(public_keys, &text, &sig, err);
    if (rc == 0)
        rc = template_parse((const char *)text.data, text.len, m, err);
    if (rc == 0)
        digest_hex(text.data, text.len, m->sha256);
    cl_buf_fini(&text);
    cl_buf_fini(&sig);
    return rc;
}

/* SHA-256 over the fields, each with its NUL, so that no two lists look alike. */
static void compute_key(const struct template *t, const struct template_maker *maker,
                        uint64_t tsc_khz, char ret_key[static TEMPLATE_HEX])
{
    char text[2048];
    int n = snprintf(text, sizeof text, "3%c%s%c%s%c%d%c%s%c%s%c%llu%c%u%c%u%c%s", 0,
                     t->m.image_key, 0, maker->driver->name, 0, maker->driver->is_shared, 0,
                     maker->vmm_build, 0, maker->cpu, 0, (unsigned long long)tsc_khz, 0,
                     t->memory_mib, 0, t->vcpus, 0, t->m.cmdline);
    CL_ASSERT(n > 0 && (size_t)n < sizeof text);
    digest_hex(text, (size_t)n, ret_key);
}

void template_compute_keys(struct template *t, const struct template_maker *maker)
{
    compute_key(t, maker, maker->tsc_khz, t->snapshot_key);
    compute_key(t, maker, 0, t->boot_key);
}

bool template_is_about_tsc(uint64_t a_khz, uint64_t b_khz)
{
    return CL_MAX(a_khz, b_khz) - CL_MIN(a_khz, b_khz) <= b_khz / TSC_NOISE;
}

/* What the agent has to know of the card; the snapshot depends on it as on every word. */
static int add_card_words(struct template_manifest *m, struct cl_err *err)
{
    const char *address[3];
    char text[3][INET_ADDRSTRLEN];
    const uint32_t numbers[3] = {NET_GUEST, NET_GATEWAY, NET_DNS};
    for (size_t i = 0; i < CL_COUNT(numbers); i++) {
        struct in_addr in = {.s_addr = htonl(numbers[i])};
        address[i] = inet_ntop(AF_INET, &in, text[i], sizeof text[i]);
    }
    size_t used = strlen(m->cmdline);
    int n = snprintf(m->cmdline + used, sizeof m->cmdline - used, " cloche.net=%s/%d,%s,%s",
                     address[0], NET_LINK_BITS, address[1], address[2]);
    return n < 0 || (size_t)n >= sizeof m->cmdline - used
               ? cl_fail(err, CL_E_TOOBIG, 0, "template '%s': its command line has no room",
                         m->name)
               : 0;
}

/* --- files --------------------------------------------------------------------------------------
 */

/* Those that its manifest names, each where its fd is. */
struct named {
    const char *name, *sha256;
    int *fd;
};

static size_t list_files(struct template *t, struct named out[static IMAGE_CHECK_MAX])
{
    size_t n = 0;
    out[n++] = (struct named){"vmlinux", t->m.kernel_sha256, &t->kernel_fd};
    out[n++] = (struct named){"initrd", t->m.initrd_sha256, &t->initrd_fd};
    out[n++] = (struct named){"rootfs.img", t->m.rootfs_sha256, &t->rootfs_fd};
    if (t->m.scratch_sha256[0])
        out[n++] = (struct named){"scratch.img", t->m.scratch_sha256, &t->scratch_fd};
    return n;
}

/* One that is known is that one, whatever its name leads to. */
static int open_file(const struct template_request *request, int dir, const struct named *file,
                     bool *ret_known, struct cl_err *err)
{
    *file->fd = request->files ? image_files_find(request->files, file->sha256) : -1;
    *ret_known = *file->fd >= 0;
    if (*ret_known)
        return 0;
    *file->fd = openat(dir, file->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (*file->fd < 0)
        return cl_fail(err, CL_E_SYS, errno, "open '%s'", file->name);
    if (request->check_later)
        return 0;
    *ret_known = true;
    return image_files_check(request->files,
                             &(struct image_file){file->name, file->sha256, *file->fd}, err);
}

static int open_files(struct template *t, const struct template_request *request, int dir,
                      struct cl_err *err)
{
    struct named files[IMAGE_CHECK_MAX];
    size_t n = list_files(t, files);
    t->is_checked = true;
    for (size_t i = 0; i < n; i++) {
        bool known;
        if (open_file(request, dir, &files[i], &known, err) < 0)
            return -1;
        t->is_checked = t->is_checked && known;
    }
    return 0;
}

int template_check(struct template *t, struct image_files *files, image_check_fn *done, void *arg,
                   struct image_check **ret_check, struct cl_err *err)
{
    struct named named[IMAGE_CHECK_MAX];
    struct image_check_spec spec = {.n = list_files(t, named), .done = done, .arg = arg};
    for (size_t i = 0; i < spec.n; i++)
        spec.files[i] = (struct image_file){named[i].name, named[i].sha256, *named[i].fd};
    return image_check_start(files, &spec, ret_check, err);
}

void template_current(const char *dir, const char *name, char ret_build[static TEMPLATE_BUILD])
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s/current", dir, name);
    ssize_t n = readlink(path, ret_build, BUILD_NAME);
    bool is_folder = n < 0 && errno == EINVAL;
    ret_build[n < 0 ? 0 : n] = '\0';
    if (is_folder)
        memcpy(ret_build, "-", 2);
}

int template_open(const struct template_request *request, struct template **ret_template,
                  struct cl_err *err)
{
    char path[PATH_MAX];
    const char *key = request->image_key;
    (void)snprintf(path, sizeof path, "%s/%s/%.*s", request->dir, request->name, BUILD_NAME,
                   key ? key : "current");
    CL_AUTO(cl_closep) int dir = -1;
    if (cl_lock_folder(path, false, &dir, NULL) < 0)
        return cl_fail(err, CL_E_NOTFOUND, 0,
                       "no template '%s' in '%s': build it with `cloche template build %s`",
                       request->name, key ? path : request->dir, request->name);
    struct template *t = cl_zalloc(sizeof *t);
    if (!t)
        return cl_fail(err, CL_E_NOMEM, 0, "template");
    *t = (struct template){.refs = 1,
                           .build_fd = -1,
                           .kernel_fd = -1,
                           .initrd_fd = -1,
                           .rootfs_fd = -1,
                           .scratch_fd = -1,
                           .disk_fd = -1,
                           .ram_fd = -1,
                           .state_fd = -1};
    cl_list_init(&t->file_waiters);
    if (read_manifest(dir, request->public_keys, &t->m, err) < 0 ||
        open_files(t, request, dir, err) < 0) {
        template_unref(t);
        return cl_wrap(err, "template '%s'", request->name);
    }
    if (key && strcmp(t->m.image_key, key) != 0) {
        template_unref(t);
        return cl_fail(err, CL_E_NOTFOUND, 0, "template '%s': '%s' is of another build",
                       request->name, path);
    }
    t->memory_mib = request->memory_mib ? request->memory_mib : t->m.default_memory_mib;
    t->vcpus = request->vcpus ? request->vcpus : t->m.default_vcpus;
    t->driver = request->maker->driver;
    t->tsc_khz = request->maker->tsc_khz;
    if (request->maker->monitor)
        t->monitor = *request->maker->monitor;
    t->network = request->network;
    if (t->network && add_card_words(&t->m, err) < 0) {
        template_unref(t);
        return -1;
    }
    template_compute_keys(t, request->maker);
    t->build_fd = cl_steal_fd(&dir);
    *ret_template = t;
    return 0;
}

struct template *template_ref(struct template *t)
{
    t->refs++;
    return t;
}

void template_unref(struct template *t)
{
    if (!t || --t->refs > 0)
        return;
    template_manifest_fini(&t->m);
    cl_closep(&t->build_fd);
    cl_closep(&t->kernel_fd);
    cl_closep(&t->initrd_fd);
    cl_closep(&t->rootfs_fd);
    cl_closep(&t->scratch_fd);
    cl_closep(&t->disk_fd);
    cl_closep(&t->ram_fd);
    cl_closep(&t->state_fd);
    rest_free(t->file);
    cl_free(t);
}

static int make_memfd(const char *name, uint64_t bytes, int *ret_fd, struct cl_err *err)
{
    CL_AUTO(cl_closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
        return cl_fail(err, CL_E_SYS, errno, "memory file of %llu bytes",
                       (unsigned long long)bytes);
    *ret_fd = cl_steal_fd(&fd);
    return 0;
}

int template_prepare(struct template *t, struct cl_err *err)
{
    CL_ASSERT(!t->file); /* nothing rests of it */
    t->sealed = false;
    cl_closep(&t->ram_fd);
    cl_closep(&t->state_fd);
    if (make_memfd("cloche-ram", t->memory_mib * CL_MIB, &t->ram_fd, err) < 0)
        return -1;
    return make_memfd("cloche-state", 0, &t->state_fd, err);
}

int template_seal(struct template *t, struct cl_err *err)
{
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    if (fcntl(t->ram_fd, F_ADD_SEALS, seals) < 0 || fcntl(t->state_fd, F_ADD_SEALS, seals) < 0)
        return cl_fail(err, CL_E_SYS, errno, "seal the snapshot of '%s'", t->m.name);
    t->sealed = true;
    return 0;
}
