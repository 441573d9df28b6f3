/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/start/plugstack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A large, busy machine needs a few seconds. */
enum { SECONDS = 10, SECONDS_MOST = 3600 };

/* What follows `name` and '=' in `text`, or NULL. */
static const char *find_value(const char *text, const char *name)
{
    size_t n = strlen(name);

    return strncmp(text, name, n) == 0 && text[n] == '=' ? text + n + 1 : NULL;
}

static bool is_path(const char *text)
{
    return *text == '/' && strlen(text) < 4096 - 64;
}

static int parse_path(struct plait_plugstack *plugstack, const char *text,
                      struct plait_error *err)
{
    const char *cache = find_value(text, "cache"),
               *site = find_value(text, "site");
    const char *path = cache ? cache : site;

    if (!path)
        return 0;
    if (!is_path(path) && !(cache && strcmp(cache, "none") == 0)) {
        plait_errorf(err, "'%.200s': must be an absolute path%s", text,
                     cache ? " or none" : "");
        return -1;
    }
    if (site)
        plugstack->site = site;
    else
        plugstack->cache = is_path(cache) ? cache : NULL;
    return 1;
}

static int parse_discovery(struct plait_plugstack *plugstack, const char *text,
                           struct plait_error *err)
{
    const char *seconds = find_value(text, "discovery-seconds"),
               *choice = find_value(text, "on-hang");

    if (seconds) {
        char *end;
        long value = strtol(seconds, &end, 10);

        if (*seconds < '1' || *seconds > '9' || *end || value > SECONDS_MOST)
            return plait_errorf(err,
                                "'%.200s': must be a whole number from 1 to %d",
                                text, SECONDS_MOST);
        plugstack->discovery_seconds = (int)value;
    }
    if (choice) {
        plugstack->unpinned = strcmp(choice, "unpinned") == 0;
        if (!plugstack->unpinned && strcmp(choice, "refuse") != 0)
            return plait_errorf(err, "'%.200s': must be refuse or unpinned",
                                text);
    }
    return seconds || choice;
}

static int parse_preflight(struct plait_plugstack *plugstack, const char *text,
                           struct plait_error *err)
{
    const char *choice = find_value(text, "preflight");

    if (!choice)
        return 0;
    plugstack->preflight = strcmp(choice, "yes") == 0;
    if (!plugstack->preflight && strcmp(choice, "no") != 0)
        return plait_errorf(err, "'%.200s': must be yes or no", text);
    return 1;
}

static int parse_option(struct plait_plugstack *plugstack, const char *text,
                        struct plait_error *err)
{
    int forced = strncmp(text, "force-", 6) == 0;
    struct plait_options trial;

    for (int i = 0; i < PLAIT_NOPTIONS; i++) {
        const char *value =
            find_value(text + (forced ? 6 : 0), plait_option_texts[i].name);

        if (!value || !plait_option_texts[i].argument)
            continue;
        plait_options_init(&trial);
        if (plait_options_set(&trial, (enum plait_option)i, value, err) < 0)
            return -1;
        plugstack->value[i] = value;
        plugstack->forced |= (unsigned)forced << i;
        return 1;
    }
    return 0;
}

static bool is_limit(const char *text)
{
    return strncmp(text, "force-", 6) == 0 || strncmp(text, "site=", 5) == 0;
}

void plait_plugstack_parse(struct plait_plugstack *plugstack, int ac, char **av,
                           void (*complain)(void *arg, const char *text),
                           void *arg)
{
    struct plait_error err;

    memset(plugstack, 0, sizeof(*plugstack));
    plugstack->cache = PLAIT_CACHEDIR;
    plugstack->discovery_seconds = SECONDS;
    for (int i = 0; i < ac; i++) {
        int rc = parse_path(plugstack, av[i], &err);

        if (rc == 0)
            rc = parse_discovery(plugstack, av[i], &err);
        if (rc == 0)
            rc = parse_preflight(plugstack, av[i], &err);
        if (rc == 0)
            rc = parse_option(plugstack, av[i], &err);
        if (rc == 0)
            plait_errorf(&err,
                         "'%.200s' is not an argument of this plugin; see "
                         "plait-plugstack(5)",
                         av[i]);
        if (rc == 1)
            continue;
        complain(arg, err.text);
        /* Without it jobs would run that the site does not allow. */
        if (is_limit(av[i]) && !plugstack->broken.text[0])
            plait_errorf(&plugstack->broken,
                         "plugstack.conf: %.400s; no planned step can start "
                         "until that is corrected",
                         err.text);
    }
}

int plait_plugstack_site(const struct plait_plugstack *plugstack,
                         struct plait_site **site, struct plait_error *err)
{
    const char *path = plugstack->site ? plugstack->site : PLAIT_SITE_FILE;
    struct plait_error why;
    struct stat found;

    *site = NULL;
    if (!plugstack->site && stat(path, &found) < 0 &&
        (errno == ENOENT || errno == ENOTDIR))
        return 0;
    *site = plait_site_create(path, &why);
    if (*site)
        return 0;
    return plait_errorf(err,
                        "%.400s; no planned step can start until the site "
                        "file is corrected",
                        why.text);
}

int plait_plugstack_apply(const struct plait_plugstack *plugstack,
                          struct plait_options *options,
                          struct plait_error *err)
{
    struct plait_options filled = *options;

    if (options->measure_only)
        return 0;
    if (plugstack->broken.text[0]) {
        *err = plugstack->broken;
        errno = EINVAL;
        return -1;
    }
    for (int i = 0; i < PLAIT_NOPTIONS; i++) {
        struct plait_options trial = filled;
        int given = options->given >> i & 1;

        if (!plugstack->value[i] || (given && !(plugstack->forced >> i & 1)))
            continue;
        if (plait_options_set(&trial, (enum plait_option)i, plugstack->value[i],
                              err) < 0)
            return -1;
        if (given && !plait_options_same(&trial, &filled)) {
            errno = EPERM;
            return plait_errorf(err, "this cluster allows only --%s=%s",
                                plait_option_flag((enum plait_option)i),
                                plugstack->value[i]);
        }
        filled = trial;
    }
    filled.preflight |= plugstack->preflight;
    *options = filled;
    return 0;
}
