/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/commands.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topology/base/option_words.h"
#include "topology/base/text.h"
#include "topology/job/site.h"

__attribute__((format(printf, 1, 0))) static void print_error(const char *fmt,
                                                              va_list ap)
{
    char text[2048];

    vsnprintf(text, sizeof(text), fmt, ap);
    plait_text_clean(text);
    fprintf(stderr, "plait: %s\n", text);
}

int plait_cmd_failed(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_error(fmt, ap);
    va_end(ap);
    return PLAIT_EXIT_FAILED;
}

int plait_cmd_misused(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    print_error(fmt, ap);
    va_end(ap);
    return PLAIT_EXIT_USAGE;
}

int plait_cmd_refuse_option(const struct option *options, const char *letters,
                            int argc, char **argv)
{
    const char *word = plait_option_word(argc, argv);
    bool is_long = strncmp(word, "--", 2) == 0;
    int length = is_long ? 2 + (int)strcspn(word + 2, "=") : 2, same = 0;
    char advice[PLAIT_OPTION_ADVICE];

    if (!is_long && optopt && strchr(letters, optopt))
        return plait_cmd_misused("option '%.*s' requires an argument", length,
                                 word);
    for (const struct option *o = options; is_long && o->name; o++) {
        same += strncmp(o->name, word + 2, (size_t)length - 2) == 0;
        if (optopt && optopt == o->val)
            return plait_cmd_misused("option '--%s' %s", o->name,
                                     o->has_arg ? "requires an argument"
                                                : "doesn't allow an argument");
    }
    if (same > 1)
        return plait_cmd_misused("option '%.*s' is ambiguous", length, word);
    plait_option_advise(options, word, advice);
    return plait_cmd_misused("unrecognized option '%.*s'%s",
                             is_long ? length : 60, word, advice);
}

int plait_cmd_ended(int status, const struct plait_error *err)
{
    return status == PLAIT_EXIT_USAGE ? plait_cmd_misused("%s", err->text)
                                      : plait_cmd_failed("%s", err->text);
}

int plait_cmd_gpu_type(const char *site_file, const char *name,
                       struct plait_gpu_type *type, const char **like,
                       struct plait_error *err)
{
    struct plait_site *site;
    int rc;

    site = plait_site_create(site_file ? site_file : plait_site_path(), err);
    if (!site)
        return -1;
    rc = plait_site_gpu_type(site, name, type, err);
    if (rc == 0 && like)
        *like = plait_site_like(site, type->name);
    plait_site_destroy(site);
    return rc;
}

int plait_cmd_check_gpu_type(const char *site_file, const char *name)
{
    struct plait_gpu_type type;
    struct plait_error err;
    struct plait_site *site;
    int rc = 0;

    site = plait_site_create(site_file ? site_file : plait_site_path(), &err);
    if (!site)
        return plait_cmd_failed("%s", err.text);
    rc = plait_site_gpu_type(site, name, &type, &err);
    plait_site_destroy(site);
    return rc < 0 ? plait_cmd_misused("%s", err.text) : -1;
}

int plait_cmd_json(json_t *document)
{
    int rc;

    if (!document)
        return plait_cmd_failed("out of memory");
    rc = json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    json_decref(document);
    if (rc)
        return plait_cmd_failed("cannot write to standard output");
    putchar('\n');
    return PLAIT_EXIT_GOOD;
}

int plait_cmd_write(const char *path, void (*print)(const void *arg, FILE *out),
                    const void *arg)
{
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    int failed;

    if (!out)
        return plait_cmd_failed("%s: %s", path, strerror(errno));
    print(arg, out);
    failed = fflush(out) || ferror(out);
    if (out != stdout)
        failed |= fclose(out) != 0;
    if (failed)
        return plait_cmd_failed("%s: %s", path, strerror(errno));
    return PLAIT_EXIT_GOOD;
}
