"""x."""


class Shadow: ...
