/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/checkpoint/manifest_identity.h"

#include <inttypes.h>
#include <libdeflate.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char marker[] = "\"checksum\": \"";
#define DIGITS 8

static json_t *settings_object(const struct plait_settings *s)
{
    json_t *object = json_object();

    for (int i = 0; object && i < s->n; i++)
        if (json_object_set_new(object, s->at[i].key,
                                json_string(s->at[i].value)) < 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

int plait_manifest_add_identity(json_t *root, const struct plait_manifest *m)
{
    const struct plait_data_identity *data = &m->info.data;
    char hash[24];

    if (m->settings.n > 0 &&
        json_object_set_new(root, "settings", settings_object(&m->settings)) <
            0)
        return -1;
    snprintf(hash, sizeof(hash), "%016" PRIx64, data->hash);
    if (data->bytes > 0 &&
        json_object_set_new(root, "data",
                            json_pack("{s:I,s:s}", "bytes",
                                      (json_int_t)data->bytes, "hash", hash)) <
            0)
        return -1;
    return json_object_set_new(root, "checksum", json_string("00000000"));
}

static int parse_settings(json_t *object, struct plait_settings *s)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        struct plait_setting *setting = &s->at[s->n];

        if (s->n == PLAIT_SETTINGS_MOST || !json_is_string(value) ||
            strlen(key) >= sizeof(setting->key) ||
            json_string_length(value) >= sizeof(setting->value))
            return -1;
        snprintf(setting->key, sizeof(setting->key), "%s", key);
        snprintf(setting->value, sizeof(setting->value), "%s",
                 json_string_value(value));
        s->n++;
    }
    return 0;
}

static int parse_data(json_t *object, struct plait_data_identity *data)
{
    const char *hash;
    json_int_t bytes;
    char *end;

    if (json_unpack(object, "{s:I,s:s}", "bytes", &bytes, "hash", &hash) < 0 ||
        bytes < 1 || strlen(hash) != 16)
        return -1;
    data->bytes = bytes;
    data->hash = strtoull(hash, &end, 16);
    return *end ? -1 : 0;
}

int plait_manifest_parse_identity(const json_t *root, struct plait_manifest *m)
{
    json_t *settings = json_object_get(root, "settings");
    json_t *data = json_object_get(root, "data");

    if ((settings && !json_is_object(settings)) ||
        (data && !json_is_object(data)) ||
        (settings && parse_settings(settings, &m->settings) < 0))
        return -1;
    return data ? parse_data(data, &m->info.data) : 0;
}

/* The checksum's digits: those after the last marker. */
static char *find_digits(const char *text, size_t size)
{
    size_t n = strlen(marker);

    if (size < n + DIGITS)
        return NULL;
    for (size_t at = size - n - DIGITS;; at--) {
        if (!memcmp(text + at, marker, n))
            return (char *)text + at + n;
        if (at == 0)
            return NULL;
    }
}

static uint32_t checksum_of(const char *text, size_t size, const char *digits)
{
    size_t before = (size_t)(digits - text);
    uint32_t crc = libdeflate_crc32(0, text, before);

    crc = libdeflate_crc32(crc, "00000000", DIGITS);
    return libdeflate_crc32(crc, digits + DIGITS, size - before - DIGITS);
}

void plait_manifest_seal(char *text, size_t size)
{
    char *digits = find_digits(text, size), hex[DIGITS + 1];

    if (!digits)
        return;
    snprintf(hex, sizeof(hex), "%08" PRIx32, checksum_of(text, size, digits));
    memcpy(digits, hex, DIGITS);
}

bool plait_manifest_is_sealed(const char *text, size_t size, bool *sealed)
{
    const char *digits = find_digits(text, size);
    char hex[DIGITS + 1];

    *sealed = digits;
    if (!digits)
        return false;
    snprintf(hex, sizeof(hex), "%08" PRIx32, checksum_of(text, size, digits));
    return !memcmp(digits, hex, DIGITS);
}
