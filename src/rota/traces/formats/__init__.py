"""One module (or package) per trace format, registered in the group `rota.formats`."""
