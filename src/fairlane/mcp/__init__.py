"""The MCP server: tools with which an assistant answers questions of support staff about a queue. Start at `server`."""
