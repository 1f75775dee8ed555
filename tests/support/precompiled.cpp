// The target that builds the precompiled header needs one source file.
