-- Now: the server's clock, in milliseconds.
return now_of('')
