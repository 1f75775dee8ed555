// What a program on the emulator may ask of it.
#pragma once

/// Whether this process has given back all memory, streams, events and graphs; lists what it has not. A process that
/// ends by _exit has to ask for itself what else is reported at its end.
bool emulated_gave_all_back();

/// Whether each call that EMULATED_FAIL names has been reached; lists those that have not.
bool emulated_made_fail();
