/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/manifest_identity.h"
#include "runtime/checkpoint/manifest_run.h"

/* manifest.json:
 * {"format": "plait", "version": 1, "step": 20, "tokens": 327680,
 *  "run": {"samples": 320, ...}, (manifest_run.h)
 *  "parameters": 123456, "optimizer": "adamw",
 *  "files": [{"name": "rank-00000.safetensors", "bytes": 4711,
 *             "crc32": "0badcafe"}, ...],
 *  "settings": {...}, "data": {...}, "checksum": "..."}
 *  (manifest_identity.h) */

static json_t *build_json(const struct plait_manifest *m)
{
    json_t *files = json_array(), *run = plait_manifest_run(&m->info.state);
    char crc[16];
    int bad = !files || !run;

    for (int i = 0; i < m->nfiles && !bad; i++) {
        snprintf(crc, sizeof(crc), "%08" PRIx32, m->files[i].crc);
        bad |= json_array_append_new(
            files, json_pack("{s:s,s:I,s:s}", "name", m->files[i].name, "bytes",
                             (json_int_t)m->files[i].bytes, "crc32", crc));
    }
    if (bad) {
        json_decref(files);
        json_decref(run);
        return NULL;
    }
    return json_pack(
        "{s:s,s:i,s:I,s:I,s:I,s:o,s:f,s:I,s:I,s:I,s:s,s:o}", "format", "plait",
        "version", 1, "step", (json_int_t)m->info.step, "tokens",
        (json_int_t)m->info.tokens, "train_steps", (json_int_t)m->info.planned,
        "run", run, "loss_scale", m->info.loss_scale.scale, "clean_steps",
        (json_int_t)m->info.loss_scale.clean, "skipped_steps",
        (json_int_t)m->info.loss_scale.skipped, "parameters",
        (json_int_t)m->parameters, "optimizer", m->optimizer, "files", files);
}

bool plait_manifest_is_under_way(const struct plait_manifest *m)
{
    for (int i = 0; i < PLAIT_SYNC_FRAGMENTS_MOST; i++)
        if (m->sent[i] > 0)
            return true;
    return false;
}

static int add_sent(json_t *root, const struct plait_manifest *m)
{
    json_t *sent = json_array();

    for (int i = 0; i < PLAIT_SYNC_FRAGMENTS_MOST; i++)
        if (json_array_append_new(sent, json_integer(m->sent[i])) < 0) {
            json_decref(sent);
            return -1;
        }
    return json_object_set_new(root, "sent", sent);
}

/* If there are replicas: "replicas": 4, "sync": "diloco", and if something is
 * under way, "sent": [4, 0, ...]. */
static json_t *add_replicas(json_t *root, const struct plait_manifest *m)
{
    if (!root || m->replicas == 0)
        return root;
    if (json_object_set_new(root, "replicas", json_integer(m->replicas)) == 0 &&
        json_object_set_new(root, "sync", json_string(m->sync)) == 0 &&
        (!plait_manifest_is_under_way(m) || add_sent(root, m) == 0))
        return root;
    json_decref(root);
    return NULL;
}

/* malloc'ed, without the newline at the end. */
static char *build_text(const struct plait_manifest *m)
{
    json_t *root = add_replicas(build_json(m), m);
    char *text = NULL;

    if (root && plait_manifest_add_identity(root, m) == 0)
        text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    if (text)
        plait_manifest_seal(text, strlen(text));
    return text;
}

int plait_manifest_write(const char *directory, const struct plait_manifest *m,
                         struct plait_error *err)
{
    char *path = NULL, *text = build_text(m);
    FILE *file = NULL;
    int rc = -1;

    if (!text || asprintf(&path, "%s/manifest.json", directory) < 0) {
        plait_errorf(err, "%s: out of memory", directory);
        goto done;
    }
    file = fopen(path, "we");
    if (!file || fprintf(file, "%s\n", text) < 0 || fflush(file) != 0 ||
        fsync(fileno(file)) < 0)
        plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    else
        rc = 0;
done:
    if (file)
        fclose(file);
    free(path);
    free(text);
    return rc;
}

int plait_model_file_write(const char *directory,
                           const struct plait_model_config *model,
                           struct plait_error *err)
{
    char *path = NULL;
    FILE *file = NULL;
    int rc = 0;

    if (asprintf(&path, "%s/plait.yaml", directory) < 0)
        return plait_errorf(err, "%s: out of memory", directory);
    file = fopen(path, "we");
    if (file)
        plait_job_config_print_model(model, file);
    if (!file || fflush(file) != 0 || fsync(fileno(file)) < 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    if (file)
        fclose(file);
    free(path);
    return rc;
}

int plait_model_file_read(const char *directory,
                          struct plait_model_config *model,
                          struct plait_error *err)
{
    struct plait_job_config *config;
    char *path = NULL;

    if (asprintf(&path, "%s/plait.yaml", directory) < 0)
        return plait_errorf(err, "%s: out of memory", directory);
    config = plait_job_config_create(path, NULL, 0, err);
    free(path);
    if (!config)
        return -1;
    *model = config->model;
    plait_job_config_destroy(config);
    return 0;
}

static int parse_file(const json_t *entry, struct plait_shard_file *file)
{
    const char *name, *crc;
    json_int_t bytes;
    char *end;

    if (json_unpack((json_t *)entry, "{s:s,s:I,s:s}", "name", &name, "bytes",
                    &bytes, "crc32", &crc) < 0 ||
        !*name || strlen(name) >= sizeof(file->name) || strchr(name, '/') ||
        bytes < 0 || strlen(crc) != 8)
        return -1;
    snprintf(file->name, sizeof(file->name), "%s", name);
    file->bytes = (uint64_t)bytes;
    file->crc = (uint32_t)strtoul(crc, &end, 16);
    return *end ? -1 : 0;
}

/* Steps up to that of the checkpoint. */
static int parse_sent(const json_t *root, struct plait_manifest *m)
{
    const json_t *sent = json_object_get(root, "sent"), *one;
    size_t n = json_array_size(sent);
    json_int_t done = json_integer_value(json_object_get(root, "step"));

    if (sent && (!json_is_array(sent) || n > PLAIT_SYNC_FRAGMENTS_MOST))
        return -1;
    for (size_t i = 0; i < n; i++) {
        one = json_array_get(sent, i);
        if (!json_is_integer(one) || json_integer_value(one) < 0 ||
            json_integer_value(one) > done)
            return -1;
        m->sent[i] = json_integer_value(one);
    }
    return 0;
}

/* The keys are only there if there are replicas. */
static int parse_replicas(const json_t *root, struct plait_manifest *m)
{
    const char *sync = "";
    int replicas = 0;

    if (json_unpack((json_t *)root, "{s?i,s?s}", "replicas", &replicas, "sync",
                    &sync) < 0 ||
        replicas < 0 || strlen(sync) >= sizeof(m->sync) ||
        parse_sent(root, m) < 0)
        return -1;
    m->replicas = replicas;
    snprintf(m->sync, sizeof(m->sync), "%s", sync);
    return 0;
}

static int parse_json(const json_t *root, struct plait_manifest *m)
{
    json_int_t step, tokens, parameters, clean = 0, skipped = 0;
    double scale = 1;
    const char *format, *optimizer = "adamw"; /* of earlier versions */
    json_t *files, *run = NULL;
    int version, i;

    if (json_unpack(
            (json_t *)root, "{s:s,s:i,s:I,s:I,s?o,s?F,s?I,s?I,s:I,s?s,s:o}",
            "format", &format, "version", &version, "step", &step, "tokens",
            &tokens, "run", &run, "loss_scale", &scale, "clean_steps", &clean,
            "skipped_steps", &skipped, "parameters", &parameters, "optimizer",
            &optimizer, "files", &files) < 0 ||
        strcmp(format, "plait") != 0 ||
        strlen(optimizer) >= sizeof(m->optimizer) || version != 1 || step < 0 ||
        tokens < 0 || !json_is_array(files) || parse_replicas(root, m) < 0 ||
        plait_manifest_parse_run(run, &m->info.state) < 0 ||
        plait_manifest_parse_identity(root, m) < 0)
        return -1;
    m->info.step = step;
    m->info.tokens = tokens;
    m->info.planned = json_integer_value(json_object_get(root, "train_steps"));
    m->info.loss_scale.scale = scale;
    m->info.loss_scale.clean = clean;
    m->info.loss_scale.skipped = skipped;
    m->parameters = parameters;
    snprintf(m->optimizer, sizeof(m->optimizer), "%s", optimizer);
    m->nfiles = (int)json_array_size(files);
    m->files = calloc(m->nfiles + 1, sizeof(*m->files));
    for (i = 0; m->files && i < m->nfiles; i++)
        if (parse_file(json_array_get(files, i), &m->files[i]) < 0)
            break;
    if (m->files && i == m->nfiles)
        return 0;
    free(m->files);
    m->files = NULL;
    return -1;
}

int plait_manifest_text(const char *directory, char **text, size_t *size,
                        struct plait_error *err)
{
    char *path = NULL, *read = NULL;
    struct stat st;
    FILE *file = NULL;
    int rc = -1;

    if (asprintf(&path, "%s/manifest.json", directory) < 0)
        return plait_errorf(err, "%s: out of memory", directory);
    file = fopen(path, "re");
    if (!file || fstat(fileno(file), &st) < 0) {
        plait_errorf(err, "%s: %s: no complete checkpoint", path,
                     strerror(errno));
        goto done;
    }
    read = malloc((size_t)st.st_size + 1);
    if (!read ||
        fread(read, 1, (size_t)st.st_size, file) != (size_t)st.st_size) {
        plait_errorf(err, "%s: cannot read it: %s", path, strerror(errno));
        goto done;
    }
    *text = read;
    *size = (size_t)st.st_size;
    read = NULL;
    rc = 0;
done:
    if (file)
        fclose(file);
    free(read);
    free(path);
    return rc;
}

/* The checksum covers the text without the newlines at its end. A manifest of
 * an earlier version has none, and no settings. */
static bool is_intact(const char *text, size_t size, bool says_more)
{
    bool sealed;

    while (size > 0 && text[size - 1] == '\n')
        size--;
    return plait_manifest_is_sealed(text, size, &sealed) ||
           (!sealed && !says_more);
}

int plait_manifest_parse(const char *directory, const char *text, size_t size,
                         struct plait_manifest *m, struct plait_error *err)
{
    struct plait_manifest read = {0};
    json_error_t why;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
    int rc = -1;

    errno = EINVAL;
    if (!root)
        plait_errorf(err, "%s/manifest.json: corrupt: line %d: %.200s",
                     directory, why.line, why.text);
    else if (parse_json(root, &read) < 0)
        plait_errorf(err,
                     "%s/manifest.json: not the manifest of a plait "
                     "checkpoint, version 1",
                     directory);
    else if (!is_intact(text, size, read.settings.n > 0))
        plait_errorf(err,
                     "%s/manifest.json: edited or corrupt: its text does not "
                     "match its checksum",
                     directory);
    else
        rc = 0;
    if (rc == 0)
        *m = read;
    else
        free(read.files);
    json_decref(root);
    return rc;
}
