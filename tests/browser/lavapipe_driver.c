// Mesa's lavapipe as a driver that Chromium takes for WebGPU: with the ids of SwiftShader, and in its place.
// Chromium takes an adapter that can share images with it, which lavapipe cannot without a kernel driver, or SwiftShader,
// which it knows by its ids. It loads SwiftShader by itself and prefers it, so this library is preloaded too and hides it.
// LAVAPIPE is the path of Mesa's library.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#define VENDOR 0x1AE0
#define DEVICE 0xC0DE
#define INITIALIZATION_FAILED (-3)

typedef void (*Function)(void);
typedef Function (*Lookup)(void *instance, const char *name);
typedef void (*GetProperties)(void *device, char *properties);

static GetProperties get_plain, get_chained;

void *dlopen(const char *path, int flags) {
    void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
    int hidden = path && strstr(path, "libvk_swiftshader.so");
    return next(hidden ? "/hidden/libvk_swiftshader.so" : path, flags);
}

static void *in_lavapipe(const char *name) {
    void *library = dlopen(LAVAPIPE, RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

// VkPhysicalDeviceProperties: apiVersion, driverVersion, vendorID, deviceID, ...
static void set_ids(char *properties) {
    const uint32_t ids[] = {VENDOR, DEVICE};
    memcpy(properties + 2 * sizeof(uint32_t), ids, sizeof ids);
}

static void plain_properties(void *device, char *properties) {
    get_plain(device, properties);
    set_ids(properties);
}

// VkPhysicalDeviceProperties2: sType, pNext, properties
static void chained_properties(void *device, char *chained) {
    get_chained(device, chained);
    set_ids(chained + 2 * sizeof(void *));
}

static Function found(const char *lookup, void *instance, const char *name) {
    Lookup look_up = (Lookup)in_lavapipe(lookup);
    Function function = look_up ? look_up(instance, name) : NULL;
    if (function && !strcmp(name, "vkGetPhysicalDeviceProperties")) {
        get_plain = (GetProperties)function;
        return (Function)plain_properties;
    }
    if (function && !strncmp(name, "vkGetPhysicalDeviceProperties2", 30)) { // or ...2KHR
        get_chained = (GetProperties)function;
        return (Function)chained_properties;
    }
    return function;
}

// ---- what Vulkan's loader calls

Function vk_icdGetInstanceProcAddr(void *instance, const char *name) {
    return found("vk_icdGetInstanceProcAddr", instance, name);
}

Function vk_icdGetPhysicalDeviceProcAddr(void *instance, const char *name) {
    return found("vk_icdGetPhysicalDeviceProcAddr", instance, name);
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version) {
    int (*negotiate)(uint32_t *) = in_lavapipe("vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate ? negotiate(version) : INITIALIZATION_FAILED;
}
